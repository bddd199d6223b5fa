//! Launcher thread that starts all processes and never ends: a worker is killed when the thread that started it ends.

use std::{
    io::{Error, Result},
    process::{Child, Command},
    sync::{
        Mutex, OnceLock,
        mpsc::{Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

type Order = (Command, SyncSender<Result<Child>>);

/// Starts a command from the launcher thread and waits until it runs.
pub fn launch_command(command: Command) -> Result<Child> {
    let (answer, child) = sync_channel(1);
    launcher_sender()?.send((command, answer)).map_err(|_| Error::other("the launcher thread has ended"))?;
    child.recv().map_err(|_| Error::other("the launcher thread has ended"))?
}

fn launcher_sender() -> Result<Sender<Order>> {
    static LAUNCHER: OnceLock<Mutex<Option<Sender<Order>>>> = OnceLock::new();
    let mut slot = LAUNCHER.get_or_init(Mutex::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(sender) = slot.as_ref() {
        return Ok(sender.clone());
    }
    let (sender, orders) = channel::<Order>();
    thread::Builder::new().name("launcher".into()).spawn(move || {
        for (mut command, answer) in orders {
            let child = command.spawn();
            // The command owns the child's end of the socket. While it is open here, a dead child would appear alive.
            drop(command);
            // If the requester has gone, its end of the socket is closed and the child exits by itself.
            let _ = answer.send(child);
        }
    })?;
    *slot = Some(sender.clone());
    Ok(sender)
}
