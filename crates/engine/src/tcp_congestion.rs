//! The congestion controller of a TCP socket, which the kernel has.

use std::io;

use socket2::Socket;

use crate::config::Congestion;

/// The longest name that the kernel gives a controller (`TCP_CA_NAME_MAX`).
const NAME_BYTES: usize = 16;

/// Why a TCP socket cannot have a congestion controller.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// The kernel has none of this name; those that it could load are not counted.
    #[error("this system has no {0} congestion control for TCP")]
    Missing(Congestion),
    /// It is not among `net.ipv4.tcp_allowed_congestion_control`, and the user has no `CAP_NET_ADMIN`.
    #[error("this user may not choose {0} congestion control for TCP")]
    Forbidden(Congestion),
    /// The kernel took it and has another one all the same.
    #[error("the system has {got} congestion control for TCP where {asked} was asked for")]
    Ignored {
        /// What was asked for.
        asked: Congestion,
        /// The kernel's name of what the socket has.
        got: String,
    },
    /// Anything else.
    #[error("cannot choose {congestion} congestion control for TCP: {source}")]
    System {
        /// What was asked for.
        congestion: Congestion,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Gives the socket this controller, and looks whether it has it.
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

/// The kernel's name of what the socket has.
pub(crate) fn in_effect(socket: &Socket) -> io::Result<String> {
    let mut name = socket.tcp_congestion()?;
    name.truncate(NAME_BYTES);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    String::from_utf8(name).map_err(io::Error::other)
}
