//! A signer with a fault, to test what its clients do about it:
//!
//! ```sh
//! cargo run -p pronghorn-fleet --example faulty_signer -- signer.toml 200   # waits 200 ms before it signs
//! cargo run -p pronghorn-fleet --example faulty_signer -- signer.toml lie   # signs something else
//! cargo run -p pronghorn-fleet --example faulty_signer -- signer.toml mute  # answers pings only
//! ```
//!
//! It signs on as many threads as `threads` of the configuration says, and runs until it is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_fleet::signer::server::Config;
use pronghorn_fleet::signer::{KeySource, PublicKey, Scheme, Server, SignError};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Slow(Duration),
    Lie,
    Mute,
}

#[derive(Debug)]
struct FaultyKey {
    key: Arc<dyn KeySource>,
    fault: Fault,
}

impl KeySource for FaultyKey {
    fn name(&self) -> &str {
        self.key.name()
    }

    fn may_block(&self) -> bool {
        true
    }

    fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        match self.fault {
            Fault::Slow(delay) => {
                std::thread::sleep(delay);
                self.key.sign(scheme, digest)
            }
            Fault::Lie => self.key.sign(scheme, scheme.digest(digest).as_ref()),
            Fault::Mute => loop {
                std::thread::park();
            },
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [config, fault] = &arguments[..] else {
        return Err("arguments: CONFIG and lie, mute or a number of milliseconds".into());
    };
    let fault = match fault.as_str() {
        "lie" => Fault::Lie,
        "mute" => Fault::Mute,
        number => Fault::Slow(Duration::from_millis(number.parse()?)),
    };
    let config = Config::load(Path::new(config))?;
    let settings = config.open_with(|key| Arc::new(FaultyKey { key, fault }))?;
    let server = Server::start(settings, |line| eprintln!("{line}"))?;
    for address in server.addresses() {
        eprintln!("listening on {address}");
    }
    loop {
        std::thread::park();
    }
}
