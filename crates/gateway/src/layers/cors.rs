//! `cors`: cross-origin resource sharing.

use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::config::{FieldName, Method, Time};

/// Options of `cors`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Options {
    /// Allowed origins, such as `https://app.example.org`; `*` for all.
    origins: Vec<String>,
    /// Allowed methods.
    methods: Vec<Method>,
    /// Allowed request headers, besides those that are always allowed.
    #[schemars(example = ["x-requested-with"])]
    headers: Vec<FieldName>,
    /// Response headers that pages may read, besides those that are always readable.
    #[schemars(example = ["x-total-count"])]
    expose: Vec<FieldName>,
    /// Whether pages may send cookies and credentials.
    credentials: bool,
    /// How long browsers cache a preflight response.
    max_age: Time,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            methods: [http::Method::GET, http::Method::HEAD, http::Method::POST].map(Method).into(),
            headers: Vec::new(),
            expose: Vec::new(),
            credentials: false,
            max_age: Time::seconds(600),
        }
    }
}

pub(super) fn layer(options: Options) -> Result<CorsLayer, String> {
    let Options { origins, methods, headers, expose, credentials, max_age } = options;
    let names =
        |names: &[FieldName]| names.iter().map(FieldName::name).collect::<Vec<HeaderName>>();
    let allowed = if origins.iter().any(|origin| origin == "*") {
        // A response that every page may read must not depend on the client's cookies.
        if credentials {
            return Err("`credentials` cannot be combined with the origin \"*\": list the origins"
                .to_owned());
        }
        AllowOrigin::any()
    } else {
        AllowOrigin::list(
            origins.iter().map(|origin| read_origin(origin)).collect::<Result<Vec<_>, _>>()?,
        )
    };
    if origins.is_empty() {
        return Err("missing `origins`: list them, such as \"https://app.example.org\", or use \
        \"*\" for all"
            .to_owned());
    }
    Ok(CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods(AllowMethods::list(methods.into_iter().map(|method| method.0)))
        .allow_headers(AllowHeaders::list(names(&headers)))
        .expose_headers(names(&expose))
        .allow_credentials(credentials)
        .max_age(max_age.0))
}

fn read_origin(text: &str) -> Result<HeaderValue, String> {
    let wrong = || {
        format!(
            "invalid origin {text:?}: write scheme and host, and the port if it is not the \
            default, such as https://app.example.org"
        )
    };
    let rest =
        text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or_else(wrong)?;
    if rest.is_empty() || rest.contains(['/', '?', '#', '*']) {
        return Err(wrong());
    }
    HeaderValue::from_str(&text.to_ascii_lowercase()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_to_be_origins() {
        assert!(read_origin("https://a.example").is_ok());
        assert!(read_origin("http://localhost:3000").is_ok());
        for wrong in ["a.example", "https://a.example/", "https://*.example", "https://"] {
            assert!(read_origin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn credentials_for_all_are_refused() {
        let options =
            Options { origins: vec!["*".to_owned()], credentials: true, ..Options::default() };
        assert!(layer(options).is_err_and(|error| error.contains("cannot be combined")));
        assert!(layer(Options::default()).is_err());
    }
}
