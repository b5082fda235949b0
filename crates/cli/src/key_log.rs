//! `SSLKEYLOGFILE`: TLS secrets, for decrypting captured packets.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::{KeyLog, KeyLogFile};

use crate::failure::{Failure, Kind};

const VARIABLE: &str = "SSLKEYLOGFILE";

/// Returns a key log if the user has set the variable. Prints a line, since anyone who can read the
/// file can decrypt the traffic.
pub(crate) fn from_environment() -> Result<Option<Arc<dyn KeyLog>>, Failure> {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let path = Path::new(&path);
    // The file is created here if missing: readable only for its owner, and errors are reported
    // early.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(|error| {
        let shown = path.display();
        Failure::new(Kind::Output, format_args!("cannot write TLS secrets to {shown}: {error}"))
            .with_hint("unset SSLKEYLOGFILE, or set it to a writable file")
    })?;
    eprint_line!("writing TLS secrets to {}, as {VARIABLE} is set", path.display());
    Ok(Some(Arc::new(KeyLogFile::new())))
}
