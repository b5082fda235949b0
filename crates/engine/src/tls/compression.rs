//! Certificate compression (RFC 8879), for clients that support it.
//!
//! Until a server has validated a client's address, it may send three times what it received, which
//! is 3,600 bytes at first. Longer chains cost another round trip; most of them fit when
//! compressed.

use std::io::Write;
use std::sync::Arc;

use rustls::compress::{CertCompressor, CompressionCache, CompressionFailed, CompressionLevel};
use rustls::{CertificateCompressionAlgorithm, ServerConfig};

/// Number of compressed chains that are cached, of a few thousand bytes each. A server with more
/// chains in rotation compresses in each handshake: 75 µs for 3,700 bytes.
const KEPT: usize = 256;
/// Brotli quality, from 0 to 11. The highest makes three certificates of the web 3 % shorter but
/// takes 5 ms, which a handshake whose chain is not cached would wait for.
const BROTLI_QUALITY: u32 = 5;
/// Size of brotli's window, as a power of two. Up to 16 the library uses another search, which
/// takes fifty times as long.
const BROTLI_WINDOW: u32 = 22;
/// Bytes passed to brotli at a time.
const PIECE: usize = 4096;

/// Supported by Chromium.
#[derive(Debug)]
struct Brotli;

/// Supported by Safari.
#[derive(Debug)]
struct Zlib;

impl CertCompressor for Brotli {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let mut compressor = brotli::CompressorWriter::new(
            Vec::with_capacity(input.len()),
            PIECE,
            BROTLI_QUALITY,
            BROTLI_WINDOW,
        );
        compressor.write_all(&input).map_err(|_| CompressionFailed)?;
        Ok(compressor.into_inner())
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let mut compressor = flate2::write::ZlibEncoder::new(
            Vec::with_capacity(input.len()),
            flate2::Compression::default(),
        );
        compressor.write_all(&input).map_err(|_| CompressionFailed)?;
        compressor.finish().map_err(|_| CompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

/// Enables compression in both configurations, with a shared cache.
pub(super) fn compress(tcp: &mut ServerConfig, quic: &mut ServerConfig) {
    let kept = Arc::new(CompressionCache::new(KEPT));
    for config in [tcp, quic] {
        config.cert_compressors = vec![&Brotli, &Zlib];
        config.cert_compression_cache = kept.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustls::compress::{CertDecompressor, DecompressionFailed};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::quic::{ClientConnection, KeyChange, ServerConnection, Version};
    use rustls::{ClientConfig, RootCertStore};

    use crate::{Config, Identity, provider};

    /// Bytes that a server may send to an address that has sent one datagram of 1,200 bytes.
    const BEFORE_VALIDATION: usize = 3 * 1200;

    static DECOMPRESSED: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug)]
    struct Brotli;

    impl CertDecompressor for Brotli {
        fn decompress(
            &self,
            mut input: &[u8],
            mut output: &mut [u8],
        ) -> Result<(), DecompressionFailed> {
            DECOMPRESSED.fetch_add(1, Ordering::Relaxed);
            brotli::BrotliDecompress(&mut input, &mut output).map_err(|_| DecompressionFailed)
        }

        fn algorithm(&self) -> rustls::CertificateCompressionAlgorithm {
            rustls::CertificateCompressionAlgorithm::Brotli
        }
    }

    #[derive(Debug)]
    struct Zlib;

    impl CertDecompressor for Zlib {
        fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
            DECOMPRESSED.fetch_add(1, Ordering::Relaxed);
            std::io::Read::read_exact(&mut flate2::read::ZlibDecoder::new(input), output)
                .map_err(|_| DecompressionFailed)
        }

        fn algorithm(&self) -> rustls::CertificateCompressionAlgorithm {
            rustls::CertificateCompressionAlgorithm::Zlib
        }
    }

    /// Returns a server with a chain as found on the web, of three certificates of a thousand bytes
    /// and more, and a client that trusts it.
    fn ends() -> (Identity, ClientConfig) {
        let name = |number: usize| {
            format!(
                "Certification Authority of the Organisation for Tests, Division {number}, \
                    Worldwide"
            )
        };
        let key = || rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let authority = |number: usize| {
            let mut parameters = rcgen::CertificateParams::new([]).unwrap();
            parameters.distinguished_name = rcgen::DistinguishedName::new();
            parameters.distinguished_name.push(rcgen::DnType::OrganizationName, name(number));
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name(number));
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            parameters.key_usages =
                vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
            parameters.crl_distribution_points = vec![rcgen::CrlDistributionPoint {
                uris: (0..4)
                    .map(|list| {
                        format!(
                            "http://lists.authority.example/division/{number}/revoked-{list}.crl"
                        )
                    })
                    .collect(),
            }];
            parameters
        };
        let root = rcgen::CertifiedIssuer::self_signed(authority(0), key()).unwrap();
        let first = rcgen::CertifiedIssuer::signed_by(authority(1), key(), &root).unwrap();
        let second = rcgen::CertifiedIssuer::signed_by(authority(2), key(), &first).unwrap();
        let names = std::iter::once("localhost".to_owned())
            .chain((0..60).map(|number| format!("service-{number}.customers.example.com")));
        let own = key();
        let leaf = rcgen::CertificateParams::new(names.collect::<Vec<_>>())
            .unwrap()
            .signed_by(&own, &second)
            .unwrap();
        let chain: Vec<CertificateDer<'static>> =
            vec![leaf.der().clone(), second.der().clone(), first.der().clone()];
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let identity =
            Identity::new(chain, PrivateKeyDer::try_from(own.serialize_der()).unwrap()).unwrap();
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h3".to_vec()];
        (identity, client)
    }

    /// Returns how many bytes of TLS the server sends before it receives more than the client's
    /// first message.
    fn first_flight(identity: &Identity, client: &ClientConfig) -> usize {
        let server = identity.quic(&Config::default().tls_options(), &std::sync::Arc::default());
        let mut server = ServerConnection::new(server.config, Version::V1, Vec::new()).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client =
            ClientConnection::new(client.clone().into(), Version::V1, name, Vec::new()).unwrap();
        let mut hello = Vec::new();
        assert!(client.write_hs(&mut hello).is_none());
        server.read_hs(&hello).unwrap();
        let mut sent = 0;
        loop {
            let mut flight = Vec::new();
            let change = server.write_hs(&mut flight);
            if flight.is_empty() && change.is_none() {
                break;
            }
            sent += flight.len();
            client.read_hs(&flight).unwrap();
            if matches!(change, Some(KeyChange::OneRtt { .. })) {
                break;
            }
        }
        let mut answer = Vec::new();
        while client.write_hs(&mut answer).is_some() {}
        server.read_hs(&answer).unwrap();
        assert!(!server.is_handshaking() && !client.is_handshaking());
        sent
    }

    #[test]
    fn long_chain_fits_what_may_be_sent_before_the_address_is_validated() {
        let (identity, plain) = ends();
        let uncompressed = first_flight(&identity, &plain);
        assert_eq!(DECOMPRESSED.load(Ordering::Relaxed), 0);
        assert!(uncompressed > BEFORE_VALIDATION, "{uncompressed}");
        for (count, decompressor) in [(1, &Brotli as &dyn CertDecompressor), (2, &Zlib)] {
            let mut taking = plain.clone();
            taking.cert_decompressors = vec![decompressor];
            let compressed = first_flight(&identity, &taking);
            assert!(
                compressed < BEFORE_VALIDATION,
                "{decompressor:?}: {compressed} of {uncompressed}"
            );
            assert_eq!(DECOMPRESSED.load(Ordering::Relaxed), count);
        }
    }
}
