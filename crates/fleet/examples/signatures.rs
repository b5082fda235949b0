//! Measures how many signatures a signer makes in a second of processor time.
//!
//! A client sends requests over one connection on the loopback interface, 256 at a time. Processor
//! time is that of the server's threads, so that the client and other programs do not count:
//!
//! ```sh
//! cargo run --release -p pronghorn-fleet --example signatures
//! ```

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pronghorn_fleet::signer::protocol::{Decoder, MAX_MESSAGE_BYTES, Opcode, Operation};
use pronghorn_fleet::signer::server::{Client, Identity, Key, Settings};
use pronghorn_fleet::signer::{Hash, KeySource, LocalKey, Scheme, Server, client_tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Requests without an answer.
const OUTSTANDING: usize = 256;
/// Time for each kind of key.
const DURATION: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let mut params = CertificateParams::new([])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["localhost".to_owned()])?.signed_by(&key, &ca)?;
    std::fs::write(path("ca.pem"), ca.pem())?;
    std::fs::write(path("cert.pem"), certificate.pem())?;
    std::fs::write(path("key.pem"), key.serialize_pem())?;
    let files = ["cert.pem", "key.pem", "ca.pem"].map(path);
    let files = files.each_ref().map(std::path::PathBuf::as_path);
    for (name, algorithm, scheme) in [
        ("RSA-2048 (PSS)", &rcgen::PKCS_RSA_SHA256, Scheme::RsaPss(Hash::Sha256)),
        ("ECDSA P-256", &rcgen::PKCS_ECDSA_P256_SHA256, Scheme::Ecdsa(Hash::Sha256)),
        ("ECDSA P-384", &rcgen::PKCS_ECDSA_P384_SHA384, Scheme::Ecdsa(Hash::Sha384)),
    ] {
        let pair = KeyPair::generate_for(algorithm)?;
        let key = Arc::new(LocalKey::from_pem(name, pair.serialize_pem().as_bytes())?);
        measure(name, &key, scheme, files)?;
    }
    Ok(())
}

fn measure(
    name: &str,
    key: &Arc<LocalKey>,
    scheme: Scheme,
    files: [&Path; 3],
) -> Result<(), Box<dyn std::error::Error>> {
    let [cert, private, ca] = files;
    let keys = vec![Key::new(name, key.clone())];
    let client = Client::new(Identity::Name("localhost".to_owned()), keys.clone());
    let mut settings = Settings::new(vec!["127.0.0.1:0".parse()?], files, vec![client], keys)?;
    settings.threads = 1;
    let server = Server::start(settings, |line| eprintln!("{line}"))?;
    let tls = client_tls(cert, private, ca)?;
    let address = server.addresses()[0];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (began, before) = (Instant::now(), processor_times()?);
    let count = runtime.block_on(async {
        let tcp = tokio::net::TcpStream::connect(address).await?;
        let connector = tokio_rustls::TlsConnector::from(tls);
        let stream = connector.connect("localhost".try_into()?, tcp).await?;
        load(stream, &**key, scheme).await
    })?;
    let (elapsed, after) = (began.elapsed(), processor_times()?);
    let [sign, io] = between(&before, &after).map(|time| time.as_secs_f64());
    println!(
        "{name}: {count} signatures in {:.1} s; per second of processor time: {:.0} of the signing \
            thread, {:.0} of the whole signer ({:.0} % of it in signing)",
        elapsed.as_secs_f64(),
        f64::from(count) / sign,
        f64::from(count) / (sign + io),
        100.0 * sign / (sign + io),
    );
    server.shutdown(Duration::from_secs(5));
    Ok(())
}

/// Sends requests for a while, and returns the number of valid answers.
async fn load(
    mut stream: tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
    key: &dyn KeySource,
    scheme: Scheme,
) -> Result<u32, Box<dyn std::error::Error>> {
    let digest = scheme.digest(b"message");
    let operation = Operation {
        ski: Some(key.public_key().ski()),
        ..Operation::new(scheme.opcode(), digest.as_ref())
    };
    let (end, mut decoder) = (Instant::now() + DURATION, Decoder::new(MAX_MESSAGE_BYTES));
    let (mut chunk, mut count, mut open) = (vec![0; 64 << 10], 0, 0);
    loop {
        if Instant::now() < end {
            let mut bytes = Vec::new();
            for id in open..OUTSTANDING {
                operation.encode(id as u32, &mut bytes)?;
            }
            open = OUTSTANDING;
            stream.write_all(&bytes).await?;
        } else if open == 0 {
            return Ok(count);
        }
        let length = stream.read(&mut chunk).await?;
        decoder.handle_bytes(&chunk[..length]);
        while let Some(message) = decoder.poll_message()? {
            let answer = message.operation?;
            if answer.opcode != Opcode::RESPONSE {
                return Err(format!("{:?}", answer.error_code()).into());
            }
            // Verifying each would take longer than signing.
            if count == 0 && !key.public_key().verifies(scheme, digest.as_ref(), &answer.payload) {
                return Err("the signature is wrong".into());
            }
            count += 1;
            open -= 1;
        }
    }
}

/// Processor time of the server's threads, by their IDs, with whether the thread signs.
type Times = HashMap<OsString, (bool, Duration)>;

/// Returns the processor time of threads that sign, and of those with connections, between two
/// readings. Threads that ended between them do not count.
fn between(before: &Times, after: &Times) -> [Duration; 2] {
    let mut times = [Duration::ZERO; 2];
    for (id, (signs, time)) in after {
        let begin = before.get(id).map_or(Duration::ZERO, |(_, time)| *time);
        times[usize::from(!signs)] += time.saturating_sub(begin);
    }
    times
}

fn processor_times() -> std::io::Result<Times> {
    let mut times = Times::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        // A thread may end meanwhile.
        let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else { continue };
        let signs = match name.trim_end() {
            "sign-0" => true,
            "signer-io" => false,
            _ => continue,
        };
        // The first field is the time on a processor, in nanoseconds (proc(5)).
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0);
        times.insert(task.file_name(), (signs, Duration::from_nanos(nanoseconds)));
    }
    Ok(times)
}
