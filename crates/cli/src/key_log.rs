//! `SSLKEYLOGFILE`: the secrets of TLS, for whoever looks at captured packets.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::{KeyLog, KeyLogFile};

use crate::failure::{Failure, Kind};

const VARIABLE: &str = "SSLKEYLOGFILE";

/// `None` unless the user has set the variable. Says so, because whoever can read the file can read the traffic.
pub(crate) fn from_environment() -> Result<Option<Arc<dyn KeyLog>>, Failure> {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return Ok(None) };
    let path = Path::new(&path);
    // Made here if it is not there: readable for nobody else, and what is wrong with it is said before anything depends on it.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(|error| {
        let shown = path.display();
        Failure::new(Kind::Output, format_args!("cannot write the secrets of TLS to {shown}: {error}"))
            .with_hint("unset SSLKEYLOGFILE, or name a file that can be written")
    })?;
    tell!("writing the secrets of TLS to {}, as {VARIABLE} asks", path.display());
    Ok(Some(Arc::new(KeyLogFile::new())))
}
