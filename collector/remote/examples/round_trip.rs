//! Times `COUNT` calls: `round_trip HOST:PORT KEY FUNCTION COUNT` prints the nanoseconds of each call on a line.
#![allow(clippy::print_stdout)]

use remote::handshake::Key;
use remote::{Address, Session};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [address, name, function, count] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: round_trip HOST:PORT KEY FUNCTION COUNT".into());
    };
    let address: Address = address.parse()?;
    let key = Key { name: name.clone(), ..Key::default() };
    let mut session = Session::open(&address, &key, Duration::from_secs(30))?;
    let function = session.find_function(function)?.ok_or("the server does not provide this function")?;
    let mut times = Vec::new();
    for _ in 0..count.parse::<u32>()? {
        let start = Instant::now();
        session.call(function, Vec::new())?;
        times.push(start.elapsed().as_nanos().to_string());
    }
    // Printed only after the loop: a consumer of the output would compete with the timed calls.
    println!("{}", times.join("\n"));
    Ok(())
}
