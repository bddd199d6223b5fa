//! `oppredict serve`.

use super::arguments::Serve;
use super::{print, read_predictor};
use crate::error::{Error, Result};
use crate::serve::{Known, PATIENCE, Service, serve};
use crate::{published, queries};
use samples::table::Mapping;
use std::net::TcpListener;
use std::path::Path;

/// Says where it listens, then answers until it is ended.
pub fn run(arguments: &Serve) -> Result<u8> {
    let file = arguments.predictor.clone().map_or_else(|| published::find(None, false), Ok)?;
    let mut predictor = read_predictor(&file)?;
    let mapping = arguments.mapping.as_deref().map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        queries::describe_devices(&mut predictor, mapping);
    }
    let known = arguments.store.as_deref().map(Known::read).transpose()?;
    let failed = |error| Error::io("listen on", Path::new(&arguments.address), error);
    let listener = TcpListener::bind(&arguments.address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !address.ip().is_loopback() {
        eprintln!("warning: other machines can reach this server at {address}; it asks nobody who they are");
    }
    print(&format!("listening on http://{address}/"))?;
    serve(listener, Service { predictor, mapping, patience: PATIENCE, known })?;
    Ok(0)
}
