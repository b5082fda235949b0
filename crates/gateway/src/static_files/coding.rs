//! Content codings of precompressed files, and the codings that a client accepts (RFC 9110, section
//! 12.5.3).

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// A content coding; coded files are next to the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    /// In the order in which they are tried if the client has no preference.
    const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Returns the name for `content-encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the suffix of file names.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

/// Returns the codings that the client prefers to the uncoded content, most preferred first.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = Coding> + use<> {
    let mut weights = [None; Coding::ALL.len()];
    let (mut others, mut identity) = (None, None);
    for line in headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok()) {
        for one in line.split(',') {
            let (name, weight) = one.split_once(';').unwrap_or((one, ""));
            let Some(weight) = read_weight(weight) else { continue };
            let name = name.trim();
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            if is("*") {
                others = Some(weight);
            } else if is("identity") {
                identity = Some(weight);
            } else if let Some(index) = Coding::ALL
                .iter()
                .position(|coding| is(coding.name()) || (*coding == Coding::Gzip && is("x-gzip")))
            {
                weights[index] = Some(weight);
            }
        }
    }
    // A coding with a lower weight than `identity` is not used. An unnamed `identity` is acceptable
    // and counts as the lowest weight.
    let floor = identity.unwrap_or(1).max(1);
    let mut order = [(0, Coding::Brotli); Coding::ALL.len()];
    for (place, (coding, weight)) in order.iter_mut().zip(Coding::ALL.into_iter().zip(weights)) {
        *place = (weight.or(others).unwrap_or(0), coding);
    }
    order.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    order.into_iter().filter(move |(weight, _)| *weight >= floor).map(|(_, coding)| coding)
}

/// Parses a weight, in thousandths. A coding with a malformed weight counts as unnamed.
fn read_weight(parameters: &str) -> Option<u16> {
    let parameters = parameters.trim();
    if parameters.is_empty() {
        return Some(1000);
    }
    let (name, value) = parameters.split_once('=')?;
    let weight: f32 = value.trim().parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
    name.trim().eq_ignore_ascii_case("q").then_some((weight * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn names(lines: &[&'static str]) -> Vec<&'static str> {
        let headers =
            lines.iter().map(|line| (ACCEPT_ENCODING, HeaderValue::from_static(line))).collect();
        accepted(&headers).map(Coding::name).collect()
    }

    #[test]
    fn weights_decide_and_then_the_smaller_file() {
        for (line, expected) in [
            ("gzip, deflate, br, zstd", &["br", "zstd", "gzip"][..]),
            ("gzip;q=1.0, br;q=0.5", &["gzip", "br"]),
            ("br;q=0, gzip", &["gzip"]),
            ("*", &["br", "zstd", "gzip"]),
            ("*;q=0.1, gzip;q=0", &["br", "zstd"]),
            ("x-gzip", &["gzip"]),
            ("GZIP; Q=0.8", &["gzip"]),
            ("identity, gzip;q=0.5", &[]),
            ("identity;q=0.2, gzip;q=0.5", &["gzip"]),
            ("gzip;q=nan, br;q=2", &[]),
            ("identity;q=0, *;q=0", &[]),
            ("", &[]),
        ] {
            assert_eq!(names(&[line]), expected, "{line}");
        }
        assert_eq!(names(&[]), [""; 0]);
        assert_eq!(names(&["gzip;q=0.5", "br"]), ["br", "gzip"]);
    }
}
