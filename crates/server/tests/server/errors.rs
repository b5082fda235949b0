//! Error messages of a server that cannot start.

use std::convert::Infallible;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use http::{Request, Response};
use pronghorn_server::{Body, Error, Limits, Server};
use tower::service_fn;

fn failure(server: Server) -> (Error, String) {
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let error = server.start(service).err().expect("it has to fail");
    let text = error.to_string();
    (error, text)
}

#[test]
fn port_in_use_error_names_the_address_with_a_hint() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (error, text) = failure(Server::new().listen_clear(address));
    assert!(matches!(error, Error::Bind(_)));
    assert!(text.contains(&address.to_string()) && text.contains("choose another"), "{text}");
}

#[test]
fn invalid_address_error_quotes_the_address() {
    let (error, text) = failure(Server::new().listen_clear("nowhere"));
    assert!(matches!(error, Error::Address { .. }));
    assert!(text.contains("listen on nowhere:") && text.contains("HOST:PORT"), "{text}");
}

#[test]
fn address_of_another_machine_is_refused_with_a_hint() {
    let (error, text) = failure(Server::new().listen_clear("192.0.2.1:0"));
    assert!(matches!(error, Error::Bind(_)));
    assert!(text.contains("192.0.2.1") && text.contains("address of this machine"), "{text}");
}

#[test]
fn missing_address_or_certificate_error_names_the_method() {
    assert!(failure(Server::new()).1.contains("Server::listen"));
    assert!(failure(Server::new().listen("127.0.0.1:0")).1.contains("Server::certificate_files"));
}

#[test]
fn unusable_certificate_error_names_the_file_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let with_files = || Server::new().listen("127.0.0.1:0").certificate_files(&cert, &key);
    assert_eq!(failure(with_files()).1.matches("; check the path").count(), 2);
    for file in [&cert, &key] {
        std::fs::write(file, "nothing").unwrap();
    }
    let (_, text) = failure(with_files());
    assert!(text.contains("cert.pem") && text.contains("PEM form"), "{text}");
    std::fs::set_permissions(&cert, Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&cert).is_err() {
        assert!(failure(with_files()).1.contains("readable"));
    }
    assert!(
        failure(Server::new().listen("127.0.0.1:0").certificate_pem("no", "thing"))
            .1
            .contains("PEM form")
    );
}

/// An RSA key of 1024 bits, created by `openssl genpkey` for this test.
const SMALL_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
MIICdwIBADANBgkqhkiG9w0BAQEFAASCAmEwggJdAgEAAoGBAK5hBPiwhaTNaVsz\n\
xQqU3ArOQeOt3+XawRZ+9UjguK1N9e4mt3YwrkVpAUqQZfYQ97oWdOx/KgyFxA1F\n\
G5HGk1XfHnN8xFBd5vtmKYDT+1gQSdPD5qZUkF35phUJ/kNeotCU8tOd3pnspOyq\n\
sduOUJHIbequ8rVE2t4hdNoB+YItAgMBAAECgYBLy3PjvKZ6WaZ/s+LjlIyITdqp\n\
4fu95vWil5B6GuNqwMYyu7VmtAYruVaMWHNZH0ruIbC00xkt1D7BHda76DpFkz6u\n\
ZbitIzH9dFD5AKUfrrmh+l5u0LLCkuQzoHfQ2r+x5EicdY9vG6mtoHAqGHnGBR8z\n\
hz61VTMBln6dePyN6QJBANdLiMd/d7C/5h42YvY4dF9plQmX9JHW3NDkHxk119YX\n\
hKp0cD8qPv488SJfr5HDdQD1+2qeN1YtUGR74HcdzwsCQQDPWRyr5RxLdItLPCsG\n\
xrcCcmtNeQMLs6trKeXwGtqNVpLk/T160P/Um1cEjq9Cz877E/6qmTfjtf6HI65B\n\
BZanAkBpEttJikNvBukXW7HGu1zIaC4txXS+bJ/Ob1diJW4Wddnwmu1hVovx5upE\n\
vXBhcoQ7GNJAgcE+FNWEhRTS7cBrAkEAnZPtlD1kSXviuGSblmTChJuMLK6AwA3l\n\
gmWvF9Bws+VNcbV7WbEoG92KPi5px27CsFG7ws76iJWxP+a/8S5cFQJBAKNKRJk9\n\
u4Z862cjQUyT+SrVAneD1oksy4kLy/8eAZTO1W0hi75/VzXqDuXGImej6bMdMqid\n\
RfJ5dSMlbvUfCtQ=\n\
-----END PRIVATE KEY-----\n\n";

#[test]
fn small_key_error_lists_the_accepted_keys() {
    let folder = tempfile::tempdir().unwrap();
    let server = || Server::new().listen("127.0.0.1:0");
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    drop(server().development_certificate_in(folder.path()).start(service).unwrap());
    let cert = std::fs::read(folder.path().join("cert.pem")).unwrap();
    let (_, text) = failure(server().certificate_pem(cert, SMALL_KEY));
    assert!(
        text.starts_with("the key: ")
            && text.contains("RSA of 2048")
            && !text.contains("issued for"),
        "{text}"
    );
}

#[test]
fn error_returned_from_main_prints_its_message() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for server in [
        Server::new(),
        Server::new().listen_clear(taken.local_addr().unwrap()),
        Server::new().listen("nowhere"),
    ] {
        let (error, text) = failure(server);
        assert_eq!(format!("{error:?}"), text);
    }
    let error = pronghorn_server::client::Error::Busy("https://a.test".to_owned());
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = Limits::default().with_connections(0).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[test]
fn all_errors_are_reported_together() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let server = || {
        Server::new()
            .listen("nowhere")
            .listen_clear(address)
            .certificate_files("none.pem", "none.key")
            .qlog(&file)
    };
    let (error, text) = failure(server());
    assert!(matches!(&error, Error::Several(errors) if errors.len() == 5), "{text}");
    for says in [
        "5 errors:\n- ",
        "- none.pem: ",
        "- none.key: ",
        "listen on nowhere:",
        &address.to_string(),
        "qlog files",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(format!("{error:?}"), text);
}

#[test]
fn settings_without_effect_are_refused() {
    let clear = || Server::new().listen_clear("127.0.0.1:0");
    let secure = || Server::new().listen("127.0.0.1:0").development_certificate();
    let (error, text) = failure(secure().redirect_to_https());
    assert!(matches!(error, Error::NothingToRedirect), "{text}");
    let (error, text) = failure(clear().webtransport());
    assert!(matches!(error, Error::WebTransportWithoutTls), "{text}");
    for workers in [0, 257] {
        let (error, text) = failure(clear().workers(workers));
        assert!(matches!(error, Error::Workers(number) if number == workers), "{text}");
    }
}

#[test]
fn address_given_twice_is_told_from_one_in_use() {
    // Other tests listen on other addresses, so that none takes the port meanwhile.
    let free = std::net::TcpListener::bind("127.77.3.1:0").unwrap().local_addr().unwrap();
    let server = || Server::new().development_certificate().listen_clear(free);
    for server in [server().listen(free), server().listen_clear(free)] {
        let (error, text) = failure(server);
        assert!(matches!(error, Error::AddressTwice(address) if address == free), "{text}");
    }
}

#[test]
fn redirect_without_a_tls_address_is_refused() {
    let (error, text) = failure(Server::new().listen_clear("127.0.0.1:0").redirect_to_https());
    assert!(matches!(error, Error::NowhereToRedirect));
    assert!(text.contains("Server::listen"), "{text}");
}
