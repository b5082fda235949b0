//! What is said when a server cannot start.

use std::convert::Infallible;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use http::{Request, Response};
use pronghorn_server::{Body, Error, Limits, Server};
use tower::service_fn;

fn failure(server: Server) -> (Error, String) {
    let service = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let error = server.start(service).err().expect("it has to fail");
    let text = error.to_string();
    (error, text)
}

#[test]
fn port_that_is_taken_is_named_with_what_helps() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (error, text) = failure(Server::new().listen_clear(address));
    assert!(matches!(error, Error::Bind(_)));
    assert!(text.contains(&address.to_string()) && text.contains("choose another"), "{text}");
}

#[test]
fn address_that_is_none_is_named_as_it_was_given() {
    let (error, text) = failure(Server::new().listen_clear("nowhere"));
    assert!(matches!(error, Error::Address { .. }));
    assert!(text.contains("listen on nowhere:") && text.contains("HOST:PORT"), "{text}");
}

#[test]
fn address_of_another_machine_is_refused_with_what_helps() {
    let (error, text) = failure(Server::new().listen_clear("192.0.2.1:0"));
    assert!(matches!(error, Error::Bind(_)));
    assert!(text.contains("192.0.2.1") && text.contains("address of this machine"), "{text}");
}

#[test]
fn missing_address_and_certificate_are_asked_for() {
    assert!(failure(Server::new()).1.contains("Server::listen"));
    assert!(failure(Server::new().listen("127.0.0.1:0")).1.contains("Server::certificate_files"));
}

#[test]
fn certificate_that_cannot_be_used_is_named_with_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let with_files = || Server::new().listen("127.0.0.1:0").certificate_files(&cert, &key);
    assert!(failure(with_files()).1.ends_with("; check the path"));
    for file in [&cert, &key] {
        std::fs::write(file, "nothing").unwrap();
    }
    let (_, text) = failure(with_files());
    assert!(text.contains("cert.pem") && text.contains("PEM form"), "{text}");
    std::fs::set_permissions(&cert, Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&cert).is_err() {
        assert!(failure(with_files()).1.contains("readable"));
    }
    assert!(failure(Server::new().listen("127.0.0.1:0").certificate_pem("no", "thing")).1.contains("PEM form"));
}

#[test]
fn error_that_main_returns_is_printed_as_its_message() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for server in [Server::new(), Server::new().listen_clear(taken.local_addr().unwrap()), Server::new().listen("nowhere")] {
        let (error, text) = failure(server);
        assert_eq!(format!("{error:?}"), text);
    }
    let error = pronghorn_server::client::Error::Busy("https://a.test".to_owned());
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = Limits::default().with_connections(0).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let server = || Server::new().listen("nowhere").listen_clear(address).certificate_files("none.pem", "none.pem").qlog(&file);
    let (error, text) = failure(server());
    assert!(matches!(&error, Error::Several(errors) if errors.len() == 4), "{text}");
    for says in ["4 things are wrong:\n- ", "none.pem", "listen on nowhere:", &address.to_string(), "qlog files"] {
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(format!("{error:?}"), text);
}

#[test]
fn redirect_without_an_address_with_tls_is_refused() {
    let (error, text) = failure(Server::new().listen_clear("127.0.0.1:0").redirect_to_https());
    assert!(matches!(error, Error::NowhereToRedirect));
    assert!(text.contains("Server::listen"), "{text}");
}
