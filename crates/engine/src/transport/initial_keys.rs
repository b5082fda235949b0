//! Keys for Initial packets (RFC 9001, section 5.2).

use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, HeaderKey, KeyPair, Keys, PacketKey};
use quinn_proto::{ConnectionId, Side};
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::quic::{self, DirectionalKeys, Suite, Version};

use super::padding::StripPadding;

/// Derives the keys of Initial packets.
///
/// quinn-proto asks a server twice for the keys of a new connection: to read its first packet, and
/// for the connection that it then creates. Deriving them takes a twentieth of a handshake, so it
/// is done once.
pub(super) struct InitialKeys {
    suite: Suite,
    /// Keys that a server was asked for once.
    latest: Mutex<Option<(ConnectionId, Arc<quic::Keys>)>>,
}

impl InitialKeys {
    /// Initial packets are protected with AES-128-GCM, whatever is negotiated.
    pub(super) fn new(provider: &CryptoProvider) -> Result<Self, String> {
        let suite = provider
            .cipher_suites
            .iter()
            .find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        let suite = suite
            .and_then(rustls::SupportedCipherSuite::tls13)
            .and_then(rustls::Tls13CipherSuite::quic_suite);
        let suite = suite
            .ok_or("QUIC needs AES-128-GCM, which the cryptography provider does not support")?;
        Ok(Self { suite, latest: Mutex::default() })
    }

    pub(super) fn derive(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        if side == Side::Client {
            return keys(&self.new_keys(dst_cid, rustls::Side::Client));
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match latest.take() {
            Some((of, known)) if of == *dst_cid => keys(&known),
            _ => keys(&latest.insert((*dst_cid, self.new_keys(dst_cid, rustls::Side::Server))).1),
        }
    }

    /// Returns a server's keys to read its first packet ahead of the library, which still finds them
    /// derived.
    pub(super) fn peek(&self, dst_cid: &ConnectionId) -> Keys {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((of, known)) if of == dst_cid => keys(known),
            _ => keys(&self.new_keys(dst_cid, rustls::Side::Server)),
        }
    }

    fn new_keys(&self, dst_cid: &ConnectionId, side: rustls::Side) -> Arc<quic::Keys> {
        Arc::new(self.suite.keys(dst_cid, side, Version::V1))
    }
}

fn keys(all: &Arc<quic::Keys>) -> Keys {
    let part = |of| Part { all: all.clone(), of };
    let (local, remote): (Of, Of) = (|all| &all.local, |all| &all.remote);
    Keys {
        header: KeyPair { local: Box::new(part(local)), remote: Box::new(part(remote)) },
        packet: KeyPair {
            local: Box::new(part(local)),
            remote: Box::new(StripPadding(part(remote))),
        },
    }
}

type Of = fn(&quic::Keys) -> &DirectionalKeys;

/// One direction of shared keys.
struct Part {
    all: Arc<quic::Keys>,
    of: Of,
}

impl Part {
    fn header(&self) -> &impl HeaderKey {
        &(self.of)(&self.all).header
    }

    fn packet(&self) -> &impl PacketKey {
        &(self.of)(&self.all).packet
    }
}

impl HeaderKey for Part {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.header().decrypt(pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.header().encrypt(pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        self.header().sample_size()
    }
}

impl PacketKey for Part {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.packet().encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.packet().decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.packet().tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.packet().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.packet().integrity_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initial() -> InitialKeys {
        InitialKeys::new(&rustls::crypto::aws_lc_rs::default_provider()).unwrap()
    }

    /// Returns an encrypted packet of the client.
    fn packet(keys: &Keys) -> BytesMut {
        let mut packet = BytesMut::from(&b"header and payload of a packet"[..]);
        packet.resize(packet.len() + keys.packet.local.tag_len(), 0);
        keys.packet.local.encrypt(2, &mut packet, 7);
        packet
    }

    #[test]
    fn server_reads_what_the_client_sends_however_often_it_asks() {
        let initial = initial();
        let ids = [&b"first id"[..], b"other id"].map(ConnectionId::new);
        for id in [ids[0], ids[0], ids[0], ids[1], ids[0], ids[1], ids[1]] {
            let (client, server) =
                (initial.derive(&id, Side::Client), initial.derive(&id, Side::Server));
            let mut packet = packet(&client);
            let header = packet.split_to(7);
            server.packet.remote.decrypt(2, &header, &mut packet).unwrap();
            assert_eq!(packet, b"and payload of a packet"[..]);
        }
    }

    #[test]
    fn other_connections_have_other_keys() {
        let initial = initial();
        let [first, other] = [&b"first id"[..], b"other id"]
            .map(|id| initial.derive(&ConnectionId::new(id), Side::Client));
        assert_ne!(packet(&first), packet(&other));
    }
}
