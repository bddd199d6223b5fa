//! Starts processes from one thread that lasts as long as this process.
//!
//! A worker asks to be killed when its parent ends, and the kernel takes "parent" to mean the thread that started it.
//! Supervisors move between threads and those end; this one does not.

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

/// Starts the command from the lasting thread and waits for it to be running.
pub fn launch(command: Command) -> Result<Child> {
    let (answer, child) = sync_channel(1);
    launcher()?.send((command, answer)).map_err(|_| Error::other("the launching thread has ended"))?;
    child.recv().map_err(|_| Error::other("the launching thread has ended"))?
}

fn launcher() -> Result<Sender<Order>> {
    static LAUNCHER: OnceLock<Mutex<Option<Sender<Order>>>> = OnceLock::new();
    let mut slot = LAUNCHER.get_or_init(Mutex::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(sender) = slot.as_ref() {
        return Ok(sender.clone());
    }
    let (sender, orders) = channel::<Order>();
    thread::Builder::new().name("launcher".into()).spawn(move || {
        for (mut command, answer) in orders {
            let child = command.spawn();
            // The command holds the child's end of the socket; while it is open here, a dead child looks alive.
            drop(command);
            // The one who asked may be gone; then its end of the socket is closed, and the child leaves by itself.
            let _ = answer.send(child);
        }
    })?;
    *slot = Some(sender.clone());
    Ok(sender)
}
