//! Secrets in a key of Redis.

use pronghorn_fleet::secrets::{Secrets, SecretsError};
use pronghorn_fleet::sessions::RedisServers;

use crate::fake::Fake;
use crate::server::{Server, is_installed};

fn read(servers: &RedisServers) -> Result<Secrets, SecretsError> {
    Secrets::from_redis(servers, None, None, None, "fleet:secrets")
}

#[test]
fn servers_that_start_together_get_the_same_secret() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let servers = server.servers();
    let secrets: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| read(&servers).unwrap())).collect();
        threads.into_iter().map(|thread| *thread.join().unwrap().current().as_bytes()).collect()
    });
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    let second = "7e".repeat(31) + "00";
    let mut admin = server.admin();
    let first = admin.run("GET fleet:secrets");
    admin.run_words(&["SET", "fleet:secrets", &format!("{second}\n{first}")]);
    let rotated = read(&servers).unwrap();
    assert_eq!(rotated.current().as_bytes()[0], 0x7e);
    assert_eq!(rotated.all()[1].as_bytes(), &secrets[0]);
}

#[test]
fn key_without_secrets_and_missing_server_are_named() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    server.admin().ok("SET fleet:secrets short");
    let error = read(&server.servers()).unwrap_err().to_string();
    assert!(error.contains("`fleet:secrets`") && error.contains("5 characters"), "{error}");
    server.admin().run("DEL fleet:secrets");
    server.admin().run("LPUSH fleet:secrets x");
    let error = read(&server.servers()).unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
    server.kill();
    let error = read(&server.servers()).unwrap_err().to_string();
    assert!(error.contains("Connection refused"), "{error}");
}

#[test]
fn replica_is_not_asked_for_secrets() {
    if !is_installed() {
        return;
    }
    let (primary, replica) = (Server::start(&[]), Server::start(&[]));
    replica.admin().replicate(primary.port);
    let both = RedisServers::Single(vec![replica.address(), primary.address()]);
    let secrets = read(&both).unwrap();
    assert_eq!(
        secrets.current().as_bytes(),
        read(&primary.servers()).unwrap().current().as_bytes()
    );
    let error = read(&replica.servers()).unwrap_err().to_string();
    assert!(error.contains("READONLY"), "{error}");
}

#[test]
fn server_that_never_answers_ends_in_an_error() {
    let fake = Fake::start(|_| Some(Vec::new()));
    let error = read(&fake.servers()).unwrap_err().to_string();
    assert!(error.contains("no answer within 5s"), "{error}");
}
