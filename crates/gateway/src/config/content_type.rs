//! Content types of files by their extensions.

use std::str::FromStr;

use http::HeaderValue;

use super::values::string_type;

/// A file extension, without the dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileExtension(pub String);

impl FromStr for FileExtension {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains(['.', '/', '\0']) {
            let hint = "use the part after the last dot, such as \"glsl\" for shader.glsl";
            return Err(format!("invalid file extension {text:?}: {hint}"));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}
string_type!(
    FileExtension,
    "name_end",
    "A file extension: the part of a file's name after the last dot.",
    "glsl"
);

/// A media type with its parameters, as in the field `content-type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType(pub HeaderValue);

impl FromStr for ContentType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
        let (essence, _) = text.split_once(';').unwrap_or((text, ""));
        let is_type = essence
            .trim_end()
            .split_once('/')
            .is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
        let value = HeaderValue::from_str(text).ok().filter(|_| is_type);
        value.map(Self).ok_or_else(|| {
            format!("invalid content type {text:?}: use one such as \"text/plain; charset=utf-8\"")
        })
    }
}
string_type!(
    ContentType,
    "content_type",
    "A content type, as it is sent.",
    "text/plain; charset=utf-8"
);

/// Returns whether a byte is valid in a token (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_type_is_refused() {
        for good in ["text/plain", "text/plain; charset=utf-8", "model/vnd.usdz+zip", "text/x ;a=b"]
        {
            assert!(good.parse::<ContentType>().is_ok(), "{good}");
        }
        for wrong in [
            "",
            "text",
            "text/",
            "/plain",
            "text/pl ain",
            "text/plain\r\nx: y",
            "text/a/b",
            "tëxt/plain",
        ] {
            assert!(wrong.parse::<ContentType>().is_err(), "{wrong}");
        }
        for wrong in ["", ".js", "tar.gz", "a/b"] {
            assert!(wrong.parse::<FileExtension>().is_err(), "{wrong}");
        }
        assert_eq!("JS".parse::<FileExtension>().expect("an end").0, "js");
    }
}
