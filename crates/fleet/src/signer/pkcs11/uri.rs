//! PKCS#11 URIs (RFC 7512).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::error::Pkcs11Error;

/// A PKCS#11 URI that names a private key. Its text for messages has no PIN.
#[derive(Clone, PartialEq, Eq)]
pub struct Pkcs11Uri {
    /// The URI without its query.
    shown: String,
    pub(super) token: Option<String>,
    pub(super) manufacturer: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) model: Option<String>,
    pub(super) slot: Option<u64>,
    pub(super) object: Option<String>,
    pub(super) id: Option<Vec<u8>>,
    pub(super) module: PathBuf,
    pin: Option<Pin>,
}

#[derive(Clone, PartialEq, Eq)]
enum Pin {
    Value(String),
    File(PathBuf),
}

fn invalid(message: impl Into<String>) -> Pkcs11Error {
    Pkcs11Error::Uri(message.into())
}

impl FromStr for Pkcs11Uri {
    type Err = Pkcs11Error;

    fn from_str(text: &str) -> Result<Self, Pkcs11Error> {
        let rest = text.strip_prefix("pkcs11:").ok_or_else(|| invalid("it begins with pkcs11:"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self {
            shown: format!("pkcs11:{path}"),
            token: None,
            manufacturer: None,
            serial: None,
            model: None,
            slot: None,
            object: None,
            id: None,
            module: PathBuf::new(),
            pin: None,
        };
        let mut seen = Vec::new();
        for (attribute, is_path) in path
            .split(';')
            .map(|attribute| (attribute, true))
            .chain(query.split('&').map(|attribute| (attribute, false)))
            .filter(|(attribute, _)| !attribute.is_empty())
        {
            // A PIN must not get into a message.
            let (name, value) =
                attribute.split_once('=').ok_or_else(|| invalid("an attribute has no value"))?;
            if seen.contains(&name) {
                return Err(invalid(format!("repeated attribute {name:?}")));
            }
            seen.push(name);
            if is_path {
                uri.set_path_attribute(name, value)?;
            } else {
                uri.set_query_attribute(name, value)?;
            }
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err(invalid("it has neither `object` nor `id`"));
        }
        if uri.module.as_os_str().is_empty() {
            return Err(invalid("it has no `module-path`"));
        }
        Ok(uri)
    }
}

impl Pkcs11Uri {
    fn set_path_attribute(&mut self, name: &str, value: &str) -> Result<(), Pkcs11Error> {
        match name {
            "token" => self.token = Some(decoded(name, value)?),
            "manufacturer" => self.manufacturer = Some(decoded(name, value)?),
            "serial" => self.serial = Some(decoded(name, value)?),
            "model" => self.model = Some(decoded(name, value)?),
            "object" => self.object = Some(decoded(name, value)?),
            "id" => self.id = Some(percent_decode_str(value).collect()),
            "slot-id" => {
                let number = value.parse().map_err(|_| invalid("`slot-id` is not a number"))?;
                self.slot = Some(number);
            }
            "type" if value == "private" => {}
            "type" => return Err(invalid("`type` must be private")),
            _ if name.starts_with("x-") => {}
            _ => return Err(invalid(format!("unsupported attribute {name:?}"))),
        }
        Ok(())
    }

    fn set_query_attribute(&mut self, name: &str, value: &str) -> Result<(), Pkcs11Error> {
        let is_second_pin = self.pin.is_some() && name.starts_with("pin-");
        match name {
            _ if is_second_pin => {
                return Err(invalid("it has both `pin-source` and `pin-value`"));
            }
            "module-path" => self.module = decoded(name, value)?.into(),
            "pin-value" => self.pin = Some(Pin::Value(decoded(name, value)?)),
            "pin-source" => {
                let source = decoded(name, value)?;
                let path = source.strip_prefix("file:").unwrap_or(&source);
                let path =
                    path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
                if path.is_empty() || source.starts_with('|') {
                    return Err(invalid("`pin-source` must be a file"));
                }
                self.pin = Some(Pin::File(path.into()));
            }
            _ if name.starts_with("x-") => {}
            _ => return Err(invalid(format!("unsupported attribute {name:?}"))),
        }
        Ok(())
    }

    /// Returns the URI with relative paths in a folder.
    #[must_use]
    pub fn in_folder(&self, folder: &Path) -> Self {
        let mut uri = self.clone();
        // A module's name without a folder is found by the system.
        if uri.module.components().count() > 1 {
            uri.module = folder.join(&uri.module);
        }
        if let Some(Pin::File(file)) = &mut uri.pin {
            *file = folder.join(&*file);
        }
        uri
    }

    /// Returns the PIN, if there is one. A file is read each time, so that it can be replaced.
    pub(super) fn pin(&self) -> Result<Option<String>, Pkcs11Error> {
        match &self.pin {
            None => Ok(None),
            Some(Pin::Value(pin)) => Ok(Some(pin.clone())),
            Some(Pin::File(path)) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned())),
                Err(error) => Err(Pkcs11Error::Pin(format!(
                    "cannot read the PIN from {}: {error}",
                    path.display()
                ))),
            },
        }
    }
}

fn decoded(name: &str, value: &str) -> Result<String, Pkcs11Error> {
    match percent_decode_str(value).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(invalid(format!("`{name}` is not UTF-8"))),
    }
}

impl fmt::Display for Pkcs11Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Pkcs11Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "?module-path=/usr/lib/hsm.so";

    fn parse(text: &str) -> Result<Pkcs11Uri, String> {
        text.parse().map_err(|error: Pkcs11Error| error.to_string())
    }

    #[test]
    fn attributes_are_decoded() {
        let uri = parse(
            "pkcs11:token=The%20token;object=k%3Be;id=%01%ff;slot-id=7;type=private;x-a=b\
                ?module-path=/usr/lib/hsm.so&pin-source=file:/etc/pin",
        )
        .unwrap();
        assert_eq!(uri.token.as_deref(), Some("The token"));
        assert_eq!(uri.object.as_deref(), Some("k;e"));
        assert_eq!(uri.id.as_deref(), Some(&[1, 255][..]));
        assert_eq!(uri.slot, Some(7));
        assert_eq!(uri.module, Path::new("/usr/lib/hsm.so"));
        assert!(uri.pin == Some(Pin::File("/etc/pin".into())));
    }

    #[test]
    fn pin_is_never_shown() {
        let text = format!("pkcs11:object=a{MODULE}&pin-value=1234");
        let uri = parse(&text).unwrap();
        assert_eq!(uri.pin(), Ok(Some("1234".to_owned())));
        assert_eq!(format!("{uri} {uri:?}"), "pkcs11:object=a pkcs11:object=a");
        for wrong in ["&pin-value=1234&pin-value=1234", "&pin-value=1234&b=1234", "&pin-value1234"]
        {
            let error = parse(&format!("pkcs11:object=a{MODULE}{wrong}")).unwrap_err();
            assert!(!error.contains("1234"), "{error}");
        }
    }

    #[test]
    fn relative_paths_are_in_the_folder_of_the_configuration() {
        let text = "pkcs11:object=a?module-path=lib/hsm.so&pin-source=pin";
        let uri = parse(text).unwrap().in_folder(Path::new("/etc/p"));
        assert_eq!(uri.module, Path::new("/etc/p/lib/hsm.so"));
        assert!(uri.pin == Some(Pin::File("/etc/p/pin".into())));
        let uri = parse("pkcs11:object=a?module-path=hsm.so&pin-source=file:///x").unwrap();
        let uri = uri.in_folder(Path::new("/etc/p"));
        assert_eq!(uri.module, Path::new("hsm.so"));
        assert!(uri.pin == Some(Pin::File("/x".into())));
    }

    #[test]
    fn invalid_uris_are_told_why() {
        for (uri, reason) in [
            ("token=a".to_owned(), "it begins with pkcs11:"),
            (format!("pkcs11:token=a{MODULE}"), "it has neither `object` nor `id`"),
            ("pkcs11:object=a".to_owned(), "it has no `module-path`"),
            (format!("pkcs11:object=a;object=b{MODULE}"), "repeated attribute \"object\""),
            (format!("pkcs11:object=a;type=public{MODULE}"), "`type` must be private"),
            (format!("pkcs11:object=%ff{MODULE}"), "`object` is not UTF-8"),
            (format!("pkcs11:objekt=a{MODULE}"), "unsupported attribute \"objekt\""),
            (format!("pkcs11:object=a;slot-id=x{MODULE}"), "`slot-id` is not a number"),
            (format!("pkcs11:object=a{MODULE}&pin-source=|cat"), "`pin-source` must be a file"),
            (
                format!("pkcs11:object=a{MODULE}&pin-source=a&pin-value=b"),
                "it has both `pin-source` and `pin-value`",
            ),
        ] {
            assert_eq!(parse(&uri), Err(format!("invalid PKCS#11 URI: {reason}")), "{uri}");
        }
    }
}
