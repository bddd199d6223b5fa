//! `oppredict serve`.

use crate::installation::shipped_predictor;
use crate::loading::read_described;
use crate::{DONE, print};
use clap::Args;
use predictor::serve::{Known, PATIENCE, Service, serve};
use predictor::{Error, Result};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Where to listen.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// File that `train` wrote [default: the one for CPUs that came with the program, which speaks of where it learned]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Mapping whose operators and devices can be asked about
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Store whose tasks and best schedules can be asked about at `/tasks` and `/best`; it is read once
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Address to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8731", value_name = "ADDRESS")]
    pub address: String,
}

/// Says where it listens, then answers until it is ended.
pub fn run(arguments: &Serve) -> Result<u8> {
    let file = arguments.predictor.clone().map_or_else(|| shipped_predictor(None, false), Ok)?;
    let (predictor, mapping) = read_described(&file, arguments.mapping.as_deref())?;
    let known = arguments.store.as_deref().map(Known::read).transpose()?;
    let failed = |error| Error::io("listen on", Path::new(&arguments.address), error);
    let listener = TcpListener::bind(&arguments.address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !address.ip().is_loopback() {
        eprintln!("warning: other machines can reach this server at {address}; it asks nobody who they are");
    }
    print(&format!("listening on http://{address}/"))?;
    serve(listener, Service { predictor, mapping, patience: PATIENCE, known })?;
    Ok(DONE)
}
