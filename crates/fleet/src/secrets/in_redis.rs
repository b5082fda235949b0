//! Secrets in a key of Redis, created by the first server that starts.

use std::fmt::Write as _;
use std::time::Duration;

use pronghorn_engine::Secret;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::{Secrets, SecretsError};
use crate::redis::{
    Address, Candidates, Connection, Dialer, Down, Login, RedisServers, RedisTls, Reply, slot,
};

/// Time to find the primary and read the secrets.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Secrets {
    /// Reads the secrets from a key of Redis. If it does not exist, one server creates it with a
    /// random secret, and all others read that. The value has the form of a file
    /// ([`Secrets::parse`]), so an operator rotates by setting it. Blocks for at most 5 s.
    ///
    /// Nothing can seal these secrets: whoever reads Redis, its dumps or its traffic can open the
    /// sessions in it. Use this where Redis is trusted as much as the servers, with TLS between;
    /// [`Secrets::from_file`] otherwise. A failover of Redis that loses the key right after its
    /// creation leaves servers with different secrets: each is correct alone, and finds no session
    /// of the others until it reads the key again.
    pub fn from_redis(
        servers: &RedisServers,
        user: Option<String>,
        password: Option<String>,
        tls: Option<RedisTls>,
        key: &str,
    ) -> Result<Self, SecretsError> {
        let fail = |reason: String| SecretsError::Redis { key: key.to_owned(), reason };
        let is_tls = servers.addresses().iter().any(Address::is_tls);
        let tls = match tls {
            None if is_tls => Some(RedisTls::new(None, None).map_err(|e| fail(e.to_string()))?),
            tls => tls,
        };
        let dialer = Dialer { login: Login { user, password }, tls };
        // On a thread of its own: a reload runs in a runtime, which allows no other one in its
        // thread.
        let content = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("redis-secrets".to_owned());
            let reading = thread.spawn_scoped(scope, || blocking_read(&dialer, servers, key));
            let reading = reading.map_err(|error| error.to_string())?;
            reading.join().unwrap_or_else(|_| Err("the thread that reads them failed".to_owned()))
        });
        let content = content.map_err(fail)?;
        let invalid = |source| SecretsError::Stored { key: key.to_owned(), source };
        // The bytes of a secret in their raw form are no valid UTF-8 as a rule, nor made by this.
        Self::parse(&content).map_err(|error| invalid(error.into()))
    }
}

/// Reads the value, in a runtime of its own.
fn blocking_read(dialer: &Dialer, servers: &RedisServers, key: &str) -> Result<Vec<u8>, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let reading = async { timeout(TIMEOUT, read_or_create(dialer, servers, key)).await };
    let content = LocalSet::new().block_on(&runtime, reading);
    // A name that is still being resolved must not delay the start.
    runtime.shutdown_background();
    content.map_err(|_| format!("no answer within {TIMEOUT:?}"))?.map_err(|down| down.to_string())
}

async fn read_or_create(
    dialer: &Dialer,
    servers: &RedisServers,
    key: &str,
) -> Result<Vec<u8>, Down> {
    let candidates = match servers {
        RedisServers::Single(addresses) => Candidates::Fixed(addresses.clone()),
        RedisServers::Sentinel { sentinels, primary } => {
            Candidates::Sentinel { sentinels: sentinels.clone(), primary: primary.clone() }
        }
        RedisServers::Cluster(nodes) => {
            let slots = dialer.slots(nodes).await?;
            let primary = slots.into_iter().nth(usize::from(slot(key.as_bytes()))).flatten();
            let primary = primary.ok_or_else(|| Down::new("no node has the key's slot"))?;
            Candidates::Fixed(vec![primary])
        }
    };
    let mut reason = Down::new("no address is configured");
    for address in dialer.resolve(&candidates).await? {
        let content = async {
            let connection = dialer.open(&address).await?;
            value(&connection, key).await
        };
        match content.await {
            Ok(content) => return Ok(content),
            Err(down) => reason = Down::new(format_args!("{address}: {down}")),
        }
    }
    Err(reason)
}

/// Creates the key unless it exists; returns its value.
async fn value(connection: &Connection, key: &str) -> Result<Vec<u8>, Down> {
    let mut secret = String::with_capacity(2 * Secret::BYTES);
    for byte in Secret::random().as_bytes() {
        write!(secret, "{byte:02x}").map_err(Down::new)?;
    }
    // A replica refuses this, so what is read is the primary's.
    let created = connection.command(&[b"SET", key.as_bytes(), secret.as_bytes(), b"NX"]).await?;
    if let Reply::Error(error) = created {
        return Err(Down::new(error));
    }
    match connection.command(&[b"GET", key.as_bytes()]).await? {
        Reply::Bulk(content) => Ok(content.to_vec()),
        Reply::Error(error) => Err(Down::new(error)),
        _ => Err(Down::new("the key has no value")),
    }
}
