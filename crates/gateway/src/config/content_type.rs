//! Content types that files are given by their names.

use std::str::FromStr;

use http::HeaderValue;

use super::values::written;

/// The end of a file's name, without the dot before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameEnd(pub String);

impl FromStr for NameEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains(['.', '/', '\0']) {
            let hint = "write what comes after the last dot, such as \"glsl\" for shader.glsl";
            return Err(format!("{text:?} is no end of a name: {hint}"));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}
written!(NameEnd, "name_end", "What comes after the last dot of a file's name.", "glsl");

/// A media type with its parameters, as the field `content-type` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType(pub HeaderValue);

impl FromStr for ContentType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
        let (essence, _) = text.split_once(';').unwrap_or((text, ""));
        let is_type = essence.trim_end().split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
        let value = HeaderValue::from_str(text).ok().filter(|_| is_type);
        value.map(Self).ok_or_else(|| format!("{text:?} is no content type: write one such as \"text/plain; charset=utf-8\""))
    }
}
written!(ContentType, "content_type", "A content type, as it is sent.", "text/plain; charset=utf-8");

/// Of what names of types are made (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_type_is_refused() {
        for good in ["text/plain", "text/plain; charset=utf-8", "model/vnd.usdz+zip", "text/x ;a=b"] {
            assert!(good.parse::<ContentType>().is_ok(), "{good}");
        }
        for wrong in ["", "text", "text/", "/plain", "text/pl ain", "text/plain\r\nx: y", "text/a/b", "tëxt/plain"] {
            assert!(wrong.parse::<ContentType>().is_err(), "{wrong}");
        }
        for wrong in ["", ".js", "tar.gz", "a/b"] {
            assert!(wrong.parse::<NameEnd>().is_err(), "{wrong}");
        }
        assert_eq!("JS".parse::<NameEnd>().expect("an end").0, "js");
    }
}
