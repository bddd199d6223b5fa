//! The command `oppredict serve`.

use crate::loading::read_predictor;
use crate::options::PredictorFlags;
use crate::{DONE, print_line};
use clap::Args;
use predictor::serve::{PATIENCE, Service, StoredRecords, serve_requests};
use predictor::{Error, Result};
use report::activity;
use report::terminal::print_notes;
use std::net::{SocketAddrV6, TcpListener};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub asked: PredictorFlags,
    /// TOML file that maps operators and devices of another project's table
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Store for `/tasks` and `/best`, read once at the start
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Address to listen on; other machines can reach any but the default
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub bind: String,
    /// Port to listen on; 0 chooses a free port
    #[arg(long, default_value_t = 8731, value_name = "N")]
    pub port: u16,
    /// Address and port in one option
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["bind", "port"])]
    pub address: Option<String>,
}

pub fn run(arguments: &Serve) -> Result<u8> {
    let (predictor, mapping) = read_predictor(&arguments.asked, None, arguments.mapping.as_deref())?;
    let known = arguments.store.as_deref().map(StoredRecords::read_store).transpose()?;
    let asked = match &arguments.address {
        Some(address) => address.clone(),
        None => join_port(&arguments.bind, arguments.port)?,
    };
    let failed = |error| Error::io_error("listen on", Path::new(&asked), error);
    let listener = TcpListener::bind(&asked).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !address.ip().is_loopback() {
        let warning = format!("other machines can reach this server at {address}; it has no authentication");
        print_notes("warning", [warning]);
    }
    print_line(&format!("listening on http://{address}/"))?;
    activity::end_activity();
    serve_requests(listener, Service { predictor, mapping, patience: PATIENCE, known })?;
    Ok(DONE)
}

/// Joins a host name or address with a port; an IPv6 address gets brackets.
fn join_port(host: &str, port: u16) -> Result<String> {
    let bracketed = format!("[{host}]:{port}");
    // Unlike `Ipv6Addr`, a socket address may have a scope: `fe80::1%2`.
    match bracketed.parse::<SocketAddrV6>() {
        Ok(_) => Ok(bracketed),
        Err(_) if host.contains(':') => {
            let problem = format!("`--bind {host}` is not an address; give the port with `--port`, or use `--address`");
            Err(Error::Query(problem))
        }
        Err(_) => Ok(format!("{host}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::join_port;

    #[test]
    fn a_host_has_no_port() {
        assert_eq!(join_port("::1", 80).unwrap(), "[::1]:80");
        assert_eq!(join_port("fe80::1%2", 80).unwrap(), "[fe80::1%2]:80");
        assert_eq!(join_port("localhost", 80).unwrap(), "localhost:80");
        assert!(join_port("127.0.0.1:9000", 80).unwrap_err().to_string().contains("--port"));
    }
}
