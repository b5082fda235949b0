//! Identity fields: header fields that name the origin, the user, the target or the method of a request, and which senders are trusted with
//! them.
//!
//! One list serves all code that passes requests on: proxies over HTTP and FastCGI, `forward-auth`, and client certificates. Fields that the
//! sender is not trusted with are set aside before routing; a route restores those that it keeps.

mod list;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ipnet::IpNet;
use pronghorn_engine::Response;

use self::list::kind_of;
use crate::forwarding;
use crate::plan::text;

/// Kind of an identity field, which decides the senders that are trusted with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names the origin of a request. Accepted from trusted proxies.
    Forwarding,
    /// Names the user or the client certificate. Set by this server; accepted from trusted proxies on routes that keep the field.
    Asserted,
    /// Names another target or method than those that routes match. Accepted from every client on routes that keep the field.
    Target,
    /// Has a name with other characters than letters, digits and dashes, which CGI applications cannot tell from another name. Accepted from
    /// every client on routes that keep the field.
    Unusual,
    /// Never accepted.
    Forbidden,
}

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

/// The high bit of each byte of `eight`, which are ASCII, that is `least` or more.
const fn at_least(eight: u64, least: u64) -> u64 {
    (eight + (0x80 - least) * ONES) & HIGH
}

/// Whether no other name is the same variable of CGI: whether there is none but letters, digits and dashes.
///
/// A header name is a token in lower case, so that all other bytes lie in three ranges. Eight are compared at once, since each name of each
/// request is looked at.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_plain = |eight: u64| {
        let below_digits = !at_least(eight, 0x30) & !(at_least(eight, 0x2d) & !at_least(eight, 0x2e));
        let around_underscore = at_least(eight, 0x5e) & !at_least(eight, 0x61);
        (below_digits | around_underscore | at_least(eight, 0x7b)) & HIGH == 0
    };
    let (eights, rest) = name.as_bytes().as_chunks::<8>();
    let mut last = [b'a'; 8];
    last[..rest.len()].copy_from_slice(rest);
    name.is_ascii() && eights.iter().chain([&last]).all(|eight| is_plain(u64::from_le_bytes(*eight)))
}

/// The name that applications take it for: all that is neither letter nor digit becomes `_` in variables of CGI.
pub(crate) fn folded(name: &str) -> String {
    name.chars().map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }).collect()
}

/// What was set aside of a request, for routes that keep some of it.
#[derive(Debug, Default)]
pub(crate) struct SetAside(Vec<(HeaderName, Vec<HeaderValue>)>);

/// A request with two `authorization` lines: what is checked here might not be what the application goes by.
#[derive(Debug)]
pub(crate) struct TwoAuthorizations;

impl From<TwoAuthorizations> for Response {
    fn from(_: TwoAuthorizations) -> Self {
        text(StatusCode::BAD_REQUEST, "authorization occurs twice\n")
    }
}

/// Sets aside what the sender of a request may not say of it, so that routes and layers do not see it. `trusted`: the proxies that are
/// trusted, if the sender is one of them; what it says of where the request comes from is [unified](forwarding::unify).
///
/// # Errors
///
/// When there are two `authorization` lines.
pub(crate) fn admit<'a>(headers: &mut HeaderMap, trusted: impl FnOnce() -> Option<&'a [IpNet]>) -> Result<SetAside, TwoAuthorizations> {
    let repeats_names = headers.len() > headers.keys_len();
    if repeats_names && headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(TwoAuthorizations);
    }
    // Most requests have none of them.
    let is_odd = headers.keys().fold(false, |odd, name| odd | (kind_of(name.as_str()).is_some() || !is_plain(name.as_str())));
    if !is_odd {
        return Ok(SetAside::default());
    }
    let trusted = trusted();
    let aside = set_aside(headers, trusted.is_some());
    if let Some(trusted) = trusted {
        forwarding::unify(headers, trusted);
    }
    Ok(aside)
}

fn set_aside(headers: &mut HeaderMap, is_trusted: bool) -> SetAside {
    let named: Vec<_> = headers.keys().filter_map(|name| Some((name.clone(), kind(name.as_str())?))).collect();
    let mut aside = SetAside::default();
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

impl SetAside {
    /// Shows what a route may keep to the conditions of routes, which look at what the sender said. Returns the names, for
    /// [`hide`](Self::hide).
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

    /// Hides again what was shown.
    pub(crate) fn hide(shown: &[HeaderName], headers: &mut HeaderMap) {
        for name in shown {
            headers.remove(name);
        }
    }

    /// Gives back what a route keeps, unless this server has said it itself meanwhile.
    pub(crate) fn give_back(self, kept: &[HeaderName], headers: &mut HeaderMap) {
        for (name, lines) in self.0 {
            if kept.contains(&name) && !headers.contains_key(&name) {
                for line in lines {
                    headers.append(name.clone(), line);
                }
            }
        }
    }
}

/// Removes the fields that an auth server must not get from any sender, trusted or not: this server alone describes the request to it.
pub(crate) fn remove_for_question(headers: &mut HeaderMap) {
    let is_removed = |name: &&HeaderName| !matches!(kind(name.as_str()), None | Some(Kind::Asserted));
    let names: Vec<_> = headers.keys().filter(is_removed).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes a field that only this server may set, in every spelling.
pub(crate) fn take_away(headers: &mut HeaderMap, name: &HeaderName) {
    headers.remove(name);
    let wanted = folded(name.as_str());
    let is_alike = |other: &&HeaderName| other.as_str().len() == wanted.len() && folded(other.as_str()) == wanted;
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
        names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("elk"))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn field_is_taken_away_in_each_spelling() {
        let mut headers = map(&["x-auth-user", "x_auth-user", "x_auth_user", "x.auth-user", "x-auth-users", "xxauth-user"]);
        take_away(&mut headers, &HeaderName::from_static("x-auth-user"));
        assert_eq!(names(&headers), ["x-auth-users", "xxauth-user"]);
        let mut headers = map(&["x-user", "x_user"]);
        take_away(&mut headers, &HeaderName::from_static("x_user"));
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
        aside.give_back(&kept, &mut headers);
        assert_eq!(names(&headers), ["accept", "cookie", "user_id", "x-original-url"]);

        let mut headers = map(&all);
        let aside = admit(&mut headers, || Some(&[])).expect("no repetition");
        assert_eq!(names(&headers), ["accept", "cookie", "forwarded", "x-forwarded-for", "x-real-ip"]);
        headers.insert("client-cert", HeaderValue::from_static("ours"));
        aside.give_back(&kept, &mut headers);
        assert_eq!(headers["client-cert"], "ours");
        let all_but = ["accept", "client-cert", "cookie", "forwarded", "remote-user", "user_id"];
        assert_eq!(names(&headers), [&all_but[..], &["x-forwarded-for", "x-forwarded-user", "x-original-url", "x-real-ip"]].concat());
    }

    #[test]
    fn route_that_keeps_nothing_gets_nothing_back() {
        let mut headers = map(&["user_id", "x-http-method-override"]);
        admit(&mut headers, || Some(&[])).expect("no repetition").give_back(&[], &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn two_authorizations_are_refused() {
        let mut headers = map(&["authorization"]);
        assert!(admit(&mut headers, || None).is_ok());
        headers.append(AUTHORIZATION, HeaderValue::from_static("fox"));
        let refusal = Response::from(admit(&mut headers, || None).expect_err("there are two"));
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn server_that_decides_hears_of_certificates_and_users_alone() {
        let mut headers = map(&["accept", "x-real-ip", "x-forwarded-port", "user_id", "x-original-url", "client-cert", "x-forwarded-user"]);
        remove_for_question(&mut headers);
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
        for byte in (0..128_u8).filter(|byte| HeaderName::from_bytes(&[*byte]).is_ok() && !byte.is_ascii_uppercase()) {
            for place in 0..17 {
                let mut name = *b"x-forwarded-for-9";
                name[place] = byte;
                let name = std::str::from_utf8(&name).expect("it is ASCII");
                assert_eq!(is_plain(name), byte.is_ascii_alphanumeric() || byte == b'-', "{name}");
            }
        }
    }

    proptest! {
        /// Whatever stands in place of dashes, a field of the list is no stranger's.
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
            admit(&mut headers, || None).expect("no repetition").give_back(&kept, &mut headers);
            prop_assert!(headers.is_empty());
        }

        /// What is left of a stranger's fields has a variable of CGI of its own, which is nobody else's.
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
