//! The congestion controller of a TCP socket, which the kernel provides.

use std::io;

use socket2::Socket;

use crate::config::Congestion;

/// Longest name of a controller in the kernel (`TCP_CA_NAME_MAX`).
const NAME_BYTES: usize = 16;

/// The reason why a TCP socket cannot use a congestion controller.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// The kernel has no controller of this name. Modules that it could load are not counted.
    #[error("congestion control {0} is not available for TCP on this system")]
    Missing(Congestion),
    /// The controller is not in `net.ipv4.tcp_allowed_congestion_control`, and the user has no
    /// `CAP_NET_ADMIN`.
    #[error("congestion control {0} is not permitted for TCP")]
    Forbidden(Congestion),
    /// The kernel accepted the controller but uses another one.
    #[error("the system uses {got} congestion control for TCP instead of {asked}")]
    Ignored {
        /// The requested controller.
        asked: Congestion,
        /// The kernel's name of the controller in use.
        got: String,
    },
    /// Any other error.
    #[error("cannot set {congestion} congestion control for TCP: {source}")]
    System {
        /// The requested controller.
        congestion: Congestion,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Sets the socket's controller, and verifies that it is in use.
pub(crate) fn choose(socket: &Socket, congestion: Congestion) -> Result<(), CongestionError> {
    let name = congestion.kernel_name();
    socket.set_tcp_congestion(name.as_bytes()).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CongestionError::Missing(congestion),
        io::ErrorKind::PermissionDenied => CongestionError::Forbidden(congestion),
        _ => CongestionError::System { congestion, source },
    })?;
    match in_effect(socket) {
        Ok(got) if got == name => Ok(()),
        Ok(got) => Err(CongestionError::Ignored { asked: congestion, got }),
        Err(source) => Err(CongestionError::System { congestion, source }),
    }
}

/// Returns the kernel's name of the controller in use.
pub(crate) fn in_effect(socket: &Socket) -> io::Result<String> {
    let mut name = socket.tcp_congestion()?;
    name.truncate(NAME_BYTES);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    String::from_utf8(name).map_err(io::Error::other)
}
