//! PROXY protocol, version 2: the client address that a balancer in front of this server reports.
//!
//! Only connections from configured balancers are parsed this way, and they must begin with the
//! header: from any other peer it could be forged.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use tokio::io::{AsyncRead, ReadBuf};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum bytes after the first 16: addresses, and further fields, which are skipped. Balancers
/// send some hundred.
const REST_BYTES: usize = 4096;

/// Reads the header. Returns the client's address, or `None` if the balancer itself is the client,
/// as in a health check.
pub(crate) async fn read(io: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut head = [0; 16];
    fill(io, &mut head).await?;
    let [signature @ .., version_command, family, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if signature != SIGNATURE || version_command >> 4 != 2 || length > REST_BYTES {
        return Err(malformed());
    }
    let mut rest = vec![0; length];
    fill(io, &mut rest).await?;
    match (version_command & 0xf, family) {
        // PROXY command with a stream over IPv4 or IPv6: source, destination, ports.
        (1, 0x11) => source::<4>(&rest, 8).map(Some),
        (1, 0x21) => source::<16>(&rest, 32).map(Some),
        // LOCAL, after which the rest has no meaning; or an address family without addresses here:
        // Unix or unspecified.
        (0, _) | (1, 0x00 | 0x31) => Ok(None),
        _ => Err(malformed()),
    }
}

/// Fills the buffer, and reads no further.
async fn fill(io: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> io::Result<()> {
    let mut buffer = ReadBuf::new(buffer);
    while buffer.remaining() > 0 {
        let before = buffer.filled().len();
        poll_fn(|cx| Pin::new(&mut *io).poll_read(cx, &mut buffer)).await?;
        if buffer.filled().len() == before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn source<const BYTES: usize>(rest: &[u8], port_at: usize) -> io::Result<SocketAddr>
where
    IpAddr: From<[u8; BYTES]>,
{
    let address = rest.first_chunk::<BYTES>().ok_or_else(malformed)?;
    // Requires the destination's port too; otherwise the header is truncated.
    let ports = rest.get(port_at..port_at + 4).ok_or_else(malformed)?;
    Ok(SocketAddr::new(
        IpAddr::from(*address).to_canonical(),
        u16::from_be_bytes([ports[0], ports[1]]),
    ))
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "missing or invalid PROXY protocol version 2 header")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;

    /// Parses `bytes`. Returns the result and the number of bytes left. All bytes are available, so
    /// nothing waits.
    fn parse(bytes: &[u8]) -> (Result<Option<SocketAddr>, io::ErrorKind>, usize) {
        let mut left = bytes;
        let result = {
            let mut reading = pin!(read(&mut left));
            match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result.map_err(|error| error.kind()),
                Poll::Pending => unreachable!("a slice never waits"),
            }
        };
        (result, left.len())
    }

    fn header(version_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[version_command, family], &length, rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 1, 187];

    #[test]
    fn address_is_read_and_not_a_byte_more() {
        let mut bytes = header(0x21, 0x11, &V4);
        bytes.extend_from_slice(b"GET /");
        assert_eq!(parse(&bytes), (Ok(Some("192.0.2.1:4660".parse().unwrap())), 5));
        let with_more = [&V4[..], &[4, 0, 1, 0]].concat();
        assert_eq!(
            parse(&header(0x21, 0x11, &with_more)),
            (Ok(Some("192.0.2.1:4660".parse().unwrap())), 0)
        );
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        v6[32..34].copy_from_slice(&[0, 80]);
        assert_eq!(
            parse(&header(0x21, 0x21, &v6)),
            (Ok(Some("[2001:db8::]:80".parse().unwrap())), 0)
        );
    }

    #[test]
    fn balancer_may_speak_for_itself() {
        assert_eq!(parse(&header(0x20, 0x00, &[])), (Ok(None), 0));
        assert_eq!(parse(&header(0x20, 0x11, &V4)), (Ok(None), 0));
        assert_eq!(parse(&header(0x21, 0x00, &[])), (Ok(None), 0));
    }

    #[test]
    fn malformed_proxy_header_is_refused() {
        let wrong = Err(io::ErrorKind::InvalidData);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").0, wrong);
        assert_eq!(parse(b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n").0, wrong);
        for (version_command, family, rest) in [
            (0x11, 0x11, &V4[..]),
            (0x22, 0x11, &V4),
            (0x21, 0x12, &V4),
            (0x21, 0x11, &V4[..11]),
            (0x21, 0x21, &V4),
        ] {
            assert_eq!(
                parse(&header(version_command, family, rest)).0,
                wrong,
                "{version_command:x} {family:x}"
            );
        }
        assert_eq!(parse(&header(0x21, 0x11, &[0; REST_BYTES + 1])).0, wrong);
        assert_eq!(parse(&header(0x21, 0x11, &V4)[..20]).0, Err(io::ErrorKind::UnexpectedEof));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(version_command: u8, family: u8, rest in prop::collection::vec(any::<u8>(), 0..64), cut in 0_usize..80) {
            let bytes = header(version_command, family, &rest);
            let _ = parse(&bytes[..cut.min(bytes.len())]);
        }
    }
}
