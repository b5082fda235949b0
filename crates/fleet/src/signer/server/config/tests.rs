use super::*;

/// A folder with a signer's files, and its configuration.
struct Folder {
    folder: tempfile::TempDir,
    text: String,
}

const VALID: &str = r#"listen = ["127.0.0.1:0"]
cert = "server.pem"
key = "server-key.pem"
client_ca = "ca.pem"

[keys]
www = "www-key.pem"

[[clients]]
name = "gateway.test"
keys = ["www"]
"#;

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = rcgen::generate_simple_self_signed(["signer.test".to_owned()]).unwrap();
        let www = rcgen::KeyPair::generate().unwrap();
        for (name, text) in [
            ("server.pem", server.cert.pem()),
            ("server-key.pem", server.signing_key.serialize_pem()),
            ("ca.pem", server.cert.pem()),
            ("www-key.pem", www.serialize_pem()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder, text: VALID.to_owned() }
    }

    fn change(mut self, old: &str, new: &str) -> Self {
        assert!(self.text.contains(old));
        self.text = self.text.replacen(old, new, 1);
        self
    }

    fn open(&self) -> Result<Settings, Problem> {
        let file = self.folder.path().join("signer.toml");
        Config::parse(&file, self.text.clone()).and_then(|config| config.open())
    }

    /// Returns the first problem, without the folder's name.
    fn problem(&self) -> String {
        let problem = self.open().map(drop).unwrap_err().to_string();
        problem.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

#[test]
fn valid_configuration_opens() {
    let settings = Folder::new().change("[keys]", "[limits]\nconnections = 7\n[keys]").open();
    let settings = settings.unwrap();
    assert_eq!((settings.limits.connections, settings.limits.requests), (7, 8192));
    assert!(settings.threads > 0);
}

#[test]
fn problems_say_where_and_what_to_do() {
    for (old, new, expected) in [
        ("cert = ", "cret = ", "signer.toml:2:1: unknown field `cret`"),
        ("cert = \"server.pem\"\n", "", "signer.toml: missing field `cert`; add it; "),
        ("[keys]", "[keys", "signer.toml:6:6: unclosed table"),
        ("127.0.0.1:0", "localhost", "signer.toml:1:"),
        ("\"server.pem\"", "\"no.pem\"", "signer.toml:2:8: no.pem: No such file or directory"),
        ("\"ca.pem\"", "\"www-key.pem\"", "signer.toml:4:13: www-key.pem: contains no certificate"),
        ("\"server-key.pem\"", "\"www-key.pem\"", "signer.toml:3:7: www-key.pem: the key does not"),
        ("\"www-key.pem\"", "\"no.pem\"", "signer.toml:7:7: key \"www\": no.pem: No such file"),
        (
            "\"www-key.pem\"",
            "\"ca.pem\"",
            "signer.toml:7:7: key \"www\": ca.pem: contains no usable",
        ),
        (
            "\"www-key.pem\"",
            "{ key = \"www-key.pem\", cert = \"ca.pem\" }",
            "signer.toml:7:7: key \"www\": it does not belong to the certificate; ",
        ),
        (
            "\"www-key.pem\"\n",
            "\"www-key.pem\"\nshop = \"www-key.pem\"\n",
            "\"www\" is the same key as \"shop\"; remove one of them",
        ),
        ("[\"www\"]", "[\"shop\"]", "signer.toml:11:9: unknown key \"shop\"; [keys] has www"),
        ("name = \"gateway.test\"\n", "", "signer.toml: a client has neither name nor sha256; add"),
        (
            "name = \"gateway.test\"",
            "sha256 = \"12\"",
            "signer.toml:10:10: invalid fingerprint \"12\"; use the 64 hexadecimal digits",
        ),
        (
            "[keys]",
            "[limits]\nrequests = 0\n[keys]",
            "signer.toml:6:1: `requests` in [limits] is 0; set it to 1 or more",
        ),
        ("[keys]", "[limits]\nidle_timeout = \"x\"\n[keys]", "invalid duration \"x\""),
        ("listen", "threads = 0\nlisten", "signer.toml:1:11: `threads` is 0; use 1 to 1024"),
        (
            "\"www-key.pem\"",
            "\"pkcs11:object=a\"",
            "signer.toml:7:7: key \"www\": invalid PKCS#11 URI: it has no `module-path`; write it",
        ),
        (
            "\"www-key.pem\"",
            "\"pkcs11:object=a?module-path=/no/hsm.so\"",
            "signer.toml:7:7: key \"www\": cannot load the PKCS#11 module /no/hsm.so: ",
        ),
    ] {
        let problem = Folder::new().change(old, new).problem();
        assert!(problem.contains(expected), "{new}\n{problem}\n{expected}");
    }
}
