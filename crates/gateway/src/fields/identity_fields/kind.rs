//! Kinds of identity fields.

/// Kind of an identity field, which decides the senders that are trusted with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names the origin of a request. Accepted from trusted proxies.
    Forwarding,
    /// Names the user or the client certificate. Set by this server; accepted from trusted proxies
    /// on routes that keep the field.
    Asserted,
    /// Names another target or method than those that routes match. Accepted from every client on
    /// routes that keep the field.
    Target,
    /// Has a name with other characters than letters, digits and dashes, which CGI applications
    /// cannot tell from another name. Accepted from every client on routes that keep the field.
    Unusual,
    /// Never accepted.
    Forbidden,
}
