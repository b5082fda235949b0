//! What a ClientHello says about the sessions that its client wants to resume.

use rustls::pki_types::ServerName;

use super::client_hello::{MESSAGE_HEADER_BYTES, SERVER_NAME, extension};

/// Wire numbers of extensions (RFC 8446, section 4.2).
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS13: [u8; 2] = [3, 4];
/// Tickets that are looked up. Clients offer one, rarely two: each costs a lookup.
const TICKETS: usize = 2;
/// Session IDs and tickets of this server have 32 bytes. Others are unknown anyway.
const NAME_BYTES: usize = 32;

/// The parts of a ClientHello that decide what its handshake waits for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HelloSummary {
    /// The requested server name (SNI), in lower case.
    pub(crate) server_name: Option<String>,
    pub(crate) sessions: OfferedSessions,
}

/// Sessions that a client offers to resume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum OfferedSessions {
    #[default]
    None,
    /// Tickets of TLS 1.3, in the client's order. Never empty.
    Tickets(Vec<[u8; NAME_BYTES]>),
    /// A session ID of TLS 1.2.
    Id([u8; NAME_BYTES]),
}

impl HelloSummary {
    /// Reads a whole ClientHello message. Malformed parts count as missing: TLS detects them by
    /// itself.
    pub(crate) fn new(message: &[u8]) -> Self {
        let server_name = extension(message, SERVER_NAME).and_then(|(_, list)| host(list));
        Self { server_name, sessions: offered_sessions(message).unwrap_or_default() }
    }
}

/// Returns the host of a server name list, as TLS reads it: the first entry, if it is a DNS name.
/// Entries of other types end the list.
fn host(list: &[u8]) -> Option<String> {
    const HOST_NAME: u8 = 0;

    let (kind, rest) = list.get(2..)?.split_first()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let name = rest.get(..usize::from(u16::from_be_bytes(*length)))?;
    match ServerName::try_from(std::str::from_utf8(name).ok()?) {
        Ok(ServerName::DnsName(name)) if *kind == HOST_NAME => {
            Some(name.as_ref().to_ascii_lowercase())
        }
        _ => None,
    }
}

fn offered_sessions(message: &[u8]) -> Option<OfferedSessions> {
    let versions = extension(message, SUPPORTED_VERSIONS).and_then(|(_, list)| list.get(1..));
    if versions.is_some_and(|list| list.chunks(2).any(|version| version == TLS13)) {
        let (_, offer) = extension(message, PRE_SHARED_KEY)?;
        let tickets = tickets(offer)?;
        return (!tickets.is_empty()).then_some(OfferedSessions::Tickets(tickets));
    }
    // Version and random come before the session ID (RFC 5246, section 7.4.1.2).
    let (length, rest) = message.get(MESSAGE_HEADER_BYTES + 34..)?.split_first()?;
    let id = rest.get(..usize::from(*length))?;
    Some(OfferedSessions::Id(id.try_into().ok()?))
}

/// Reads the identities of a pre-shared key offer (RFC 8446, section 4.2.11).
fn tickets(offer: &[u8]) -> Option<Vec<[u8; NAME_BYTES]>> {
    let (length, rest) = offer.split_first_chunk::<2>()?;
    let mut identities = rest.get(..usize::from(u16::from_be_bytes(*length)))?;
    let mut tickets = Vec::new();
    while !identities.is_empty() && tickets.len() < TICKETS {
        let (length, rest) = identities.split_first_chunk::<2>()?;
        let (identity, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        tickets.extend(<[u8; NAME_BYTES]>::try_from(identity));
        // The obfuscated age of the ticket.
        identities = rest.get(4..)?;
    }
    Some(tickets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_hello(session_id: &[u8], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, content) in extensions {
            list.extend(kind.to_be_bytes());
            list.extend((content.len() as u16).to_be_bytes());
            list.extend(content);
        }
        let mut body = vec![3, 3];
        body.extend([9; 32]);
        body.push(session_id.len() as u8);
        body.extend(session_id);
        body.extend([0, 2, 0x13, 0x01, 1, 0]);
        body.extend((list.len() as u16).to_be_bytes());
        body.extend(list);
        let mut message = vec![1, 0];
        message.extend((body.len() as u16).to_be_bytes());
        message.extend(body);
        message
    }

    fn name(host: &str) -> (u16, Vec<u8>) {
        let length = host.len() as u16;
        let mut list = Vec::from((length + 3).to_be_bytes());
        list.push(0);
        list.extend(length.to_be_bytes());
        list.extend(host.as_bytes());
        (SERVER_NAME, list)
    }

    fn offer(tickets: &[&[u8]]) -> (u16, Vec<u8>) {
        let mut identities = Vec::new();
        for ticket in tickets {
            identities.extend((ticket.len() as u16).to_be_bytes());
            identities.extend(*ticket);
            identities.extend([1, 2, 3, 4]);
        }
        let mut offer = Vec::from((identities.len() as u16).to_be_bytes());
        offer.extend(identities);
        offer.extend([0, 33, 32]);
        offer.extend([7; 32]);
        (PRE_SHARED_KEY, offer)
    }

    fn versions(list: &[u8]) -> (u16, Vec<u8>) {
        let mut content = vec![list.len() as u8];
        content.extend(list);
        (SUPPORTED_VERSIONS, content)
    }

    #[test]
    fn tickets_are_read_in_order_and_at_most_two_of_known_length() {
        let hello = client_hello(
            &[5; 32],
            &[
                name("Example.com"),
                versions(&[3, 4, 3, 3]),
                offer(&[b"not ours", &[1; 32], &[2; 32], &[3; 32]]),
            ],
        );
        let summary = HelloSummary::new(&hello);
        assert_eq!(summary.server_name.as_deref(), Some("example.com"));
        assert_eq!(summary.sessions, OfferedSessions::Tickets(vec![[1; 32], [2; 32]]));
    }

    #[test]
    fn server_name_is_what_tls_takes_it_for() {
        let named =
            |list: (u16, Vec<u8>)| HelloSummary::new(&client_hello(&[], &[list])).server_name;
        assert_eq!(named(name("Slow.Example")).as_deref(), Some("slow.example"));
        let mut more = name("slow.example");
        more.1.extend([1, b'x', b'y']);
        assert_eq!(named(more).as_deref(), Some("slow.example"));
        for invalid in ["192.0.2.1", "a b", ""] {
            assert_eq!(named(name(invalid)), None);
        }
    }

    #[test]
    fn session_id_counts_only_without_tls_13() {
        let hello = client_hello(&[5; 32], &[versions(&[3, 3])]);
        assert_eq!(HelloSummary::new(&hello).sessions, OfferedSessions::Id([5; 32]));
        let hello = client_hello(&[5; 32], &[versions(&[3, 4])]);
        assert_eq!(HelloSummary::new(&hello).sessions, OfferedSessions::None);
        let hello = client_hello(&[5; 7], &[]);
        assert_eq!(HelloSummary::new(&hello).sessions, OfferedSessions::None);
    }

    #[test]
    fn truncated_or_changed_message_offers_nothing_that_is_not_there() {
        let hello = client_hello(&[], &[name("a.example"), versions(&[3, 4]), offer(&[&[1; 32]])]);
        for end in 0..hello.len() {
            assert_ne!(
                HelloSummary::new(&hello[..end]).sessions,
                OfferedSessions::Tickets(vec![[1; 32]])
            );
        }
        for at in 0..hello.len() {
            let mut changed = hello.clone();
            changed[at] = 255;
            let _ = HelloSummary::new(&changed);
        }
    }
}
