//! Identity fields: header fields that name the origin, the user, the target or the method of a
//! request, and which senders are trusted with them.
//!
//! One list serves all code that passes requests on: proxies over HTTP and FastCGI, `forward-auth`,
//! and client certificates. Fields that the sender is not trusted with are set aside before
//! routing; a route restores those that it keeps.

mod kind;
mod list;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ipnet::IpNet;
use pronghorn_engine::Response;

pub(crate) use self::kind::Kind;
use self::list::kind_of;
use crate::fields::forwarding;
use crate::responses::text;

/// Returns the kind of a field, or `None` for an ordinary field.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    if is_plain(name) {
        return kind_of(name);
    }
    match kind_of(&folded(name)) {
        None | Some(Kind::Target) => Some(Kind::Unusual),
        Some(_) => Some(Kind::Forbidden),
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;

/// Returns the high bit of each byte of `eight` that is at least `least`. The bytes must be ASCII.
const fn at_least(eight: u64, least: u64) -> u64 {
    (eight + (0x80 - least) * ONES) & HIGH
}

/// Returns whether a name consists of letters, digits and dashes only, so that no other name maps
/// to the same CGI variable.
///
/// A header name is a lower-case token, so all other bytes lie in three ranges. Eight bytes are
/// compared at once, since every name of every request is checked.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_plain = |eight: u64| {
        let below_digits =
            !at_least(eight, 0x30) & !(at_least(eight, 0x2d) & !at_least(eight, 0x2e));
        let around_underscore = at_least(eight, 0x5e) & !at_least(eight, 0x61);
        (below_digits | around_underscore | at_least(eight, 0x7b)) & HIGH == 0
    };
    let (eights, rest) = name.as_bytes().as_chunks::<8>();
    let mut last = [b'a'; 8];
    last[..rest.len()].copy_from_slice(rest);
    name.is_ascii()
        && eights.iter().chain([&last]).all(|eight| is_plain(u64::from_le_bytes(*eight)))
}

/// Returns the name that CGI applications see: any character that is neither letter nor digit
/// becomes `_` in CGI variables.
pub(crate) fn folded(name: &str) -> String {
    name.chars()
        .map(
            |character| {
                if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
            },
        )
        .collect()
}

/// Fields that were set aside, for routes that keep some of them.
#[derive(Debug, Default)]
pub(crate) struct UntrustedFields(Vec<(HeaderName, Vec<HeaderValue>)>);

/// Refusal of a request with two `authorization` lines: the application might use another one than
/// the one checked here.
#[derive(Debug)]
pub(crate) struct TwoAuthorizations;

impl From<TwoAuthorizations> for Response {
    fn from(_: TwoAuthorizations) -> Self {
        text(StatusCode::BAD_REQUEST, "duplicate authorization header\n")
    }
}

/// Sets aside the fields that the sender is not trusted with, so that routes and layers do not see
/// them. `trusted` returns the trusted proxies if the sender is one of them; then its forwarding
/// fields are [unified](forwarding::unify).
///
/// # Errors
///
/// If there are two `authorization` lines.
pub(crate) fn admit<'a>(
    headers: &mut HeaderMap,
    trusted: impl FnOnce() -> Option<&'a [IpNet]>,
) -> Result<UntrustedFields, TwoAuthorizations> {
    let repeats_names = headers.len() > headers.keys_len();
    if repeats_names && headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(TwoAuthorizations);
    }
    // Most requests have no such fields.
    let is_odd = headers.keys().fold(false, |odd, name| {
        odd | (kind_of(name.as_str()).is_some() || !is_plain(name.as_str()))
    });
    if !is_odd {
        return Ok(UntrustedFields::default());
    }
    let trusted = trusted();
    let aside = set_aside(headers, trusted.is_some());
    if let Some(trusted) = trusted {
        forwarding::unify(headers, trusted);
    }
    Ok(aside)
}

fn set_aside(headers: &mut HeaderMap, is_trusted: bool) -> UntrustedFields {
    let named: Vec<_> =
        headers.keys().filter_map(|name| Some((name.clone(), kind(name.as_str())?))).collect();
    let mut aside = UntrustedFields::default();
    for (name, kind) in named {
        let may_be_kept = match kind {
            Kind::Forwarding if is_trusted => continue,
            Kind::Asserted => is_trusted,
            Kind::Target | Kind::Unusual => true,
            Kind::Forwarding | Kind::Forbidden => false,
        };
        if may_be_kept {
            let lines = headers.get_all(&name).iter().cloned().collect();
            aside.0.push((name.clone(), lines));
        }
        headers.remove(name);
    }
    aside
}

impl UntrustedFields {
    /// Restores the fields temporarily, for conditions of routes on the sender's fields. Returns
    /// their names, for [`hide`](Self::hide).
    pub(crate) fn show(&self, headers: &mut HeaderMap) -> Vec<HeaderName> {
        let mut shown = Vec::new();
        for (name, lines) in &self.0 {
            if !headers.contains_key(name) {
                shown.push(name.clone());
                for line in lines {
                    headers.append(name.clone(), line.clone());
                }
            }
        }
        shown
    }

    /// Removes the fields that [`show`](Self::show) restored.
    pub(crate) fn hide(shown: &[HeaderName], headers: &mut HeaderMap) {
        for name in shown {
            headers.remove(name);
        }
    }

    /// Restores the fields that a route keeps, unless this server has set them itself.
    pub(crate) fn restore(self, kept: &[HeaderName], headers: &mut HeaderMap) {
        for (name, lines) in self.0 {
            if kept.contains(&name) && !headers.contains_key(&name) {
                for line in lines {
                    headers.append(name.clone(), line);
                }
            }
        }
    }
}

/// Removes the fields that an auth server must not get from any sender, trusted or not: only this
/// server describes the request to it.
pub(crate) fn remove_for_auth_request(headers: &mut HeaderMap) {
    let is_removed =
        |name: &&HeaderName| !matches!(kind(name.as_str()), None | Some(Kind::Asserted));
    let names: Vec<_> = headers.keys().filter(is_removed).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes a field that only this server may set, in every spelling.
pub(crate) fn remove_in_all_spellings(headers: &mut HeaderMap, name: &HeaderName) {
    headers.remove(name);
    let wanted = folded(name.as_str());
    let is_alike = |other: &&HeaderName| {
        other.as_str().len() == wanted.len() && folded(other.as_str()) == wanted
    };
    let names: Vec<_> = headers.keys().filter(is_alike).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(names: &[&'static str]) -> HeaderMap {
        names
            .iter()
            .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("elk")))
            .collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn field_is_taken_away_in_each_spelling() {
        let mut headers = map(&[
            "x-auth-user",
            "x_auth-user",
            "x_auth_user",
            "x.auth-user",
            "x-auth-users",
            "xxauth-user",
        ]);
        remove_in_all_spellings(&mut headers, &HeaderName::from_static("x-auth-user"));
        assert_eq!(names(&headers), ["x-auth-users", "xxauth-user"]);
        let mut headers = map(&["x-user", "x_user"]);
        remove_in_all_spellings(&mut headers, &HeaderName::from_static("x_user"));
        assert!(headers.is_empty());
    }

    #[test]
    fn stranger_says_nothing_of_itself_and_a_proxy_where_it_comes_from() {
        let all = [
            "accept",
            "cookie",
            "forwarded",
            "x-real-ip",
            "x-forwarded-for",
            "x-forwarded-user",
            "client-cert",
            "x_real_ip",
            "user_id",
            "x-original-url",
            "proxy",
            "remote-user",
        ];
        let mut headers = map(&all);
        let aside = admit(&mut headers, || None).expect("no repetition");
        assert_eq!(names(&headers), ["accept", "cookie"]);
        let kept = all.map(HeaderName::from_static);
        aside.restore(&kept, &mut headers);
        assert_eq!(names(&headers), ["accept", "cookie", "user_id", "x-original-url"]);

        let mut headers = map(&all);
        let aside = admit(&mut headers, || Some(&[])).expect("no repetition");
        assert_eq!(
            names(&headers),
            ["accept", "cookie", "forwarded", "x-forwarded-for", "x-real-ip"]
        );
        headers.insert("client-cert", HeaderValue::from_static("ours"));
        aside.restore(&kept, &mut headers);
        assert_eq!(headers["client-cert"], "ours");
        let all_but = ["accept", "client-cert", "cookie", "forwarded", "remote-user", "user_id"];
        assert_eq!(
            names(&headers),
            [&all_but[..], &["x-forwarded-for", "x-forwarded-user", "x-original-url", "x-real-ip"]]
                .concat()
        );
    }

    #[test]
    fn route_that_keeps_nothing_gets_nothing_back() {
        let mut headers = map(&["user_id", "x-http-method-override"]);
        admit(&mut headers, || Some(&[])).expect("no repetition").restore(&[], &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn two_authorizations_are_refused() {
        let mut headers = map(&["authorization"]);
        assert!(admit(&mut headers, || None).is_ok());
        headers.append(AUTHORIZATION, HeaderValue::from_static("fox"));
        let refusal =
            Response::from(admit(&mut headers, || None).expect_err("two authorization lines"));
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn server_that_decides_hears_of_certificates_and_users_alone() {
        let mut headers = map(&[
            "accept",
            "x-real-ip",
            "x-forwarded-port",
            "user_id",
            "x-original-url",
            "client-cert",
            "x-forwarded-user",
        ]);
        remove_for_auth_request(&mut headers);
        assert_eq!(names(&headers), ["accept", "client-cert", "x-forwarded-user"]);
    }

    const LISTED: [&str; 14] = [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-anything",
        "x-real-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "client-cert",
        "client-cert-chain",
        "x-client-cert-subject",
        "ssl-client-verify",
        "remote-user",
        "x-forwarded-client-cert",
        "early-data",
        "proxy",
    ];

    #[test]
    fn letters_digits_and_dashes_alone_are_plain() {
        for byte in (0..128_u8)
            .filter(|byte| HeaderName::from_bytes(&[*byte]).is_ok() && !byte.is_ascii_uppercase())
        {
            for place in 0..17 {
                let mut name = *b"x-forwarded-for-9";
                name[place] = byte;
                let name = std::str::from_utf8(&name).expect("it is ASCII");
                assert_eq!(is_plain(name), byte.is_ascii_alphanumeric() || byte == b'-', "{name}");
            }
        }
    }

    proptest! {
        /// In every spelling, a listed field is not accepted from an untrusted sender.
        #[test]
        fn no_spelling_of_a_listed_name_is_a_strangers(
            index in 0..LISTED.len(), separators in proptest::collection::vec("[-_.!#$%&'*+^`|~]", 8), kept in any::<bool>(),
        ) {
            let mut separators = separators.iter().cycle();
            let spelled: String = LISTED[index]
                .chars()
                .map(|one| if one == '-' { separators.next().cloned().unwrap_or_default() } else { one.to_string() })
                .collect();
            let name = HeaderName::try_from(spelled).expect("a token");
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), HeaderValue::from_static("elk"));
            let kept = if kept { vec![name] } else { Vec::new() };
            admit(&mut headers, || None).expect("no repetition").restore(&kept, &mut headers);
            prop_assert!(headers.is_empty());
        }

        /// The remaining fields of an untrusted sender map to distinct CGI variables.
        #[test]
        fn what_is_left_has_one_spelling(names in proptest::collection::vec("[a-z_.-]{1,12}", 0..12)) {
            let mut headers: HeaderMap = names
                .iter()
                .filter_map(|name| Some((HeaderName::try_from(name).ok()?, HeaderValue::from_static("elk"))))
                .collect();
            admit(&mut headers, || None).expect("no repetition");
            prop_assert!(headers.keys().all(|name| folded(name.as_str()) == name.as_str() && kind(name.as_str()).is_none()));
        }
    }
}
