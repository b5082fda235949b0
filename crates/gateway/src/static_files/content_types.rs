//! Content types of files, by file name extension.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use http::HeaderValue;

/// Registered types that the library lacks, or for which it has an unregistered or withdrawn name.
/// Sorted.
const REGISTERED: [(&str, &str); 46] = [
    ("cjs", "text/javascript"), // RFC 9239, as `js` and `mjs`
    ("deb", "application/vnd.debian.binary-package"),
    ("emf", "image/emf"), // RFC 7903
    ("ktx2", "image/ktx2"),
    ("m2t", "video/mp2t"),
    ("m2ts", "video/mp2t"),
    ("m3u8", "application/vnd.apple.mpegurl"), // RFC 8216
    ("m4a", "audio/mp4"),                      // RFC 4337
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json"), // source maps, ECMA-426
    ("mjs", "text/javascript"),
    ("mml", "application/mathml+xml"),
    ("mtl", "model/mtl"),
    ("mts", "video/mp2t"),
    ("obj", "model/obj"),
    ("otc", "font/collection"), // RFC 8081, as are the next entries
    ("otf", "font/otf"),
    ("p12", "application/pkcs12"),
    ("pfx", "application/pkcs12"),
    ("pkpass", "application/vnd.apple.pkpass"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("rar", "application/vnd.rar"),
    ("sql", "application/sql"),
    ("step", "model/step"),
    ("stl", "model/stl"),
    ("stp", "model/step"),
    ("swf", "application/vnd.adobe.flash.movie"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"), // RFC 3555; TypeScript sources have the same extension, but are not served to browsers
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("usda", "model/vnd.usda"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcard", "text/vcard"), // RFC 6350
    ("vcf", "text/vcard"),
    ("wgsl", "text/wgsl"),
    ("wmf", "image/wmf"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("wsdl", "application/wsdl+xml"),
    ("xlf", "application/xliff+xml"),
    ("xslt", "application/xslt+xml"),
    ("yaml", "application/yaml"), // RFC 9512
    ("yml", "application/yaml"),
    ("zst", "application/zstd"), // RFC 8878
];

const UNKNOWN: &str = "application/octet-stream";

/// Configured content types by extension, in lower case and without a dot. They take precedence
/// over the known types.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContentTypes(BTreeMap<String, HeaderValue>);

impl ContentTypes {
    /// `types` has the values as sent.
    pub(crate) fn new(types: impl IntoIterator<Item = (String, HeaderValue)>) -> Self {
        Self(types.into_iter().map(|(end, value)| (end.to_ascii_lowercase(), value)).collect())
    }

    /// Returns the type of a file of this name. There is always a type: without one, a browser
    /// sniffs the content, and content that looks like a page runs as a page.
    pub(crate) fn of(&self, path: &[u8]) -> HeaderValue {
        let end = Path::new(OsStr::from_bytes(path))
            .extension()
            .and_then(OsStr::to_str)
            .map(str::to_ascii_lowercase);
        let own = end.as_ref().filter(|_| !self.0.is_empty()).and_then(|end| self.0.get(end));
        own.cloned().unwrap_or_else(|| known(end.as_deref(), UNKNOWN))
    }
}

/// Returns the known type of a name, or `unknown`.
pub(crate) fn of_name(path: &Path, unknown: &'static str) -> HeaderValue {
    known(path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase).as_deref(), unknown)
}

fn known(end: Option<&str>, unknown: &'static str) -> HeaderValue {
    let registered = |end: &str| {
        REGISTERED.binary_search_by_key(&end, |(known, _)| known).ok().map(|at| REGISTERED[at].1)
    };
    let guess = end
        .and_then(|end| registered(end).or_else(|| mime_guess::from_ext(end).first_raw()))
        .unwrap_or(unknown);
    if guess.starts_with("text/") {
        return HeaderValue::try_from(format!("{guess}; charset=utf-8"))
            .expect("invariant: types are visible ASCII");
    }
    HeaderValue::from_static(guess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_types_are_found_by_search() {
        assert!(REGISTERED.is_sorted_by_key(|(end, _)| *end));
    }

    #[test]
    fn names_have_the_types_that_are_registered() {
        for (name, requested) in [
            ("a.cjs", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a/b.m4s", "video/iso.segment"),
            ("a.usdz", "model/vnd.usdz+zip"),
            ("a.ktx2", "image/ktx2"),
            ("seg-1.ts", "video/mp2t"),
            ("a.WOFF", "font/woff"),
            ("a.woff2", "font/woff2"),
            ("a.otf", "font/otf"),
            ("a.ttf", "font/ttf"),
            ("live.m3u8", "application/vnd.apple.mpegurl"),
            ("a.yml", "application/yaml"),
            ("a.wasm", "application/wasm"),
            ("a.html", "text/html; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.b.json", "application/json"),
            ("a", UNKNOWN),
            ("a.", UNKNOWN),
            (".js", UNKNOWN),
            ("a.js/b", UNKNOWN),
            ("a.unknown-end", UNKNOWN),
        ] {
            assert_eq!(ContentTypes::default().of(name.as_bytes()), requested, "{name}");
        }
        assert_eq!(ContentTypes::default().of(b"a.\xff"), UNKNOWN);
    }

    #[test]
    fn own_types_go_first_and_stay_as_they_are_written() {
        let own = [("TS", "text/typescript; charset=utf-8"), ("glsl", "text/plain")];
        let types = ContentTypes::new(
            own.map(|(end, value)| (end.to_owned(), HeaderValue::from_static(value))),
        );
        assert_eq!(types.of(b"a.ts"), "text/typescript; charset=utf-8");
        assert_eq!(types.of(b"a.GLSL"), "text/plain");
        assert_eq!(types.of(b"a.css"), "text/css; charset=utf-8");
    }
}
