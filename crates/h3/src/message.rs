//! Validity of messages (RFC 9114 sections 4.1.2, 4.2 and 4.3). A malformed message is an error of
//! its stream only.

mod authority;
mod field;
mod outgoing;
mod request;
mod response;
mod word_scan;

pub(crate) use outgoing::{OutgoingSection, SectionKind};
pub(crate) use request::request_head;
pub(crate) use response::{check_trailers, response_head};
