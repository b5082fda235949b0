//! The body of a message.

use std::fmt;
use std::net::IpAddr;

use bytes::BufMut;

use super::codes::{ErrorCode, Opcode, Tag};
use super::sizes::{HEADER_BYTES, PADDED_BYTES, VERSION};

/// Size of an item's tag and length.
const ITEM_HEADER_BYTES: usize = 3;

/// The identifier of a key: SHA-1 of the public key's bits, as in RFC 5280 section 4.2.1.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ski(pub [u8; 20]);

impl fmt::Debug for Ski {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Ski {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A request or a response. Items that no known peer needs an answer to are ignored when they are
/// received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What to do, or the kind of the response.
    pub opcode: Opcode,
    /// The digest to sign, the signature, an [`ErrorCode`], or the data of a ping.
    pub payload: Vec<u8>,
    /// Identifier of the key.
    pub ski: Option<Ski>,
    /// Server name that the TLS client requested.
    pub server_name: Option<String>,
    /// Address of the TLS client.
    pub client_ip: Option<IpAddr>,
    /// Address of the TLS server.
    pub server_ip: Option<IpAddr>,
}

/// The reason why a body is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedOperation {
    /// An item is longer than the body, or the body ends within an item's header.
    #[error("an item is longer than the message")]
    Truncated,
    /// A known item exists twice.
    #[error("repeated item {0}")]
    Repeated(Tag),
    /// A known item has a size that it cannot have.
    #[error("item {0} has {1} bytes")]
    WrongSize(Tag, usize),
    /// The server name is not UTF-8.
    #[error("the server name is not UTF-8")]
    NotUtf8,
    /// The body has no opcode.
    #[error("no opcode")]
    NoOpcode,
}

/// An operation that is too long for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message would have {0} bytes, more than its length field can express")]
pub struct EncodeError(pub usize);

impl Operation {
    /// Returns an operation with a payload and nothing else.
    pub fn new(opcode: Opcode, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            opcode,
            payload: payload.into(),
            ski: None,
            server_name: None,
            client_ip: None,
            server_ip: None,
        }
    }

    /// Returns the response that reports an error.
    pub fn error(code: ErrorCode) -> Self {
        Self::new(Opcode::ERROR, [code.0])
    }

    /// Returns the error code of a response with the opcode `ERROR`.
    pub fn error_code(&self) -> Option<ErrorCode> {
        (self.opcode == Opcode::ERROR)
            .then(|| ErrorCode(self.payload.first().copied().unwrap_or(ErrorCode::INTERNAL.0)))
    }

    /// Appends the message with this body to `out`, padded to [`PADDED_BYTES`].
    ///
    /// # Errors
    ///
    /// Returns an error if the message would be too long. Nothing is appended then.
    pub fn encode(&self, id: u32, out: &mut impl BufMut) -> Result<(), EncodeError> {
        let mut body = Vec::with_capacity(PADDED_BYTES);
        self.put_items(&mut body)?;
        let size = HEADER_BYTES + body.len();
        if size < PADDED_BYTES {
            let padding = PADDED_BYTES.saturating_sub(size + ITEM_HEADER_BYTES);
            put_item(&mut body, Tag::PADDING, &[0; PADDED_BYTES][..padding])?;
        }
        let length = u16::try_from(body.len()).map_err(|_| EncodeError(body.len()))?;
        let [high, low] = length.to_be_bytes();
        let [a, b, c, d] = id.to_be_bytes();
        out.put_slice(&[VERSION, 0, high, low, a, b, c, d]);
        out.put_slice(&body);
        Ok(())
    }

    fn put_items(&self, body: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_item(body, Tag::OPCODE, &[self.opcode.0])?;
        if !self.payload.is_empty() {
            put_item(body, Tag::PAYLOAD, &self.payload)?;
        }
        if let Some(ski) = &self.ski {
            put_item(body, Tag::SUBJECT_KEY_IDENTIFIER, &ski.0)?;
        }
        if let Some(address) = self.client_ip {
            put_address(body, Tag::CLIENT_IP, address)?;
        }
        if let Some(address) = self.server_ip {
            put_address(body, Tag::SERVER_IP, address)?;
        }
        if let Some(name) = &self.server_name {
            put_item(body, Tag::SERVER_NAME, name.as_bytes())?;
        }
        Ok(())
    }

    /// Parses the body of a message.
    ///
    /// # Errors
    ///
    /// Returns the reason why the body is malformed.
    pub fn decode(mut body: &[u8]) -> Result<Self, MalformedOperation> {
        let mut operation = Self::new(Opcode(0), Vec::new());
        let mut seen = [false; 256];
        while !body.is_empty() {
            let (tag, value, rest) = take_item(body)?;
            body = rest;
            if operation.set(tag, value)? && std::mem::replace(&mut seen[usize::from(tag.0)], true)
            {
                return Err(MalformedOperation::Repeated(tag));
            }
        }
        if seen[usize::from(Tag::OPCODE.0)] {
            Ok(operation)
        } else {
            Err(MalformedOperation::NoOpcode)
        }
    }

    /// Stores the value of an item. Returns whether the tag is known.
    fn set(&mut self, tag: Tag, value: &[u8]) -> Result<bool, MalformedOperation> {
        let wrong_size = MalformedOperation::WrongSize(tag, value.len());
        match tag {
            Tag::OPCODE => match value {
                [opcode] => self.opcode = Opcode(*opcode),
                _ => return Err(wrong_size),
            },
            Tag::PAYLOAD => self.payload = value.to_vec(),
            Tag::SUBJECT_KEY_IDENTIFIER => {
                self.ski = Some(Ski(value.try_into().map_err(|_| wrong_size)?));
            }
            Tag::CLIENT_IP => self.client_ip = Some(address(value).ok_or(wrong_size)?),
            Tag::SERVER_IP => self.server_ip = Some(address(value).ok_or(wrong_size)?),
            Tag::SERVER_NAME => {
                let name = std::str::from_utf8(value).map_err(|_| MalformedOperation::NotUtf8)?;
                self.server_name = Some(name.to_owned());
            }
            Tag::CERTIFICATE_DIGEST
            | Tag::CERTIFICATE_ID
            | Tag::CUSTOM_FUNCTION
            | Tag::EXTRA
            | Tag::JAEGER_SPAN
            | Tag::REQUEST_CONTEXT
            | Tag::COMPLIANCE_REGION
            | Tag::PADDING => {}
            // Tags of later versions are ignored.
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn take_item(body: &[u8]) -> Result<(Tag, &[u8], &[u8]), MalformedOperation> {
    let ([tag, high, low], rest) =
        body.split_first_chunk::<ITEM_HEADER_BYTES>().ok_or(MalformedOperation::Truncated)?;
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let (value, rest) = rest.split_at_checked(length).ok_or(MalformedOperation::Truncated)?;
    Ok((Tag(*tag), value, rest))
}

fn put_item(body: &mut Vec<u8>, tag: Tag, value: &[u8]) -> Result<(), EncodeError> {
    let length = u16::try_from(value.len()).map_err(|_| EncodeError(value.len()))?;
    body.push(tag.0);
    body.extend(length.to_be_bytes());
    body.extend(value);
    Ok(())
}

fn put_address(body: &mut Vec<u8>, tag: Tag, address: IpAddr) -> Result<(), EncodeError> {
    match address {
        IpAddr::V4(address) => put_item(body, tag, &address.octets()),
        IpAddr::V6(address) => put_item(body, tag, &address.octets()),
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(<[u8; 4]>::try_from(value).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(value).ok()?.into()),
        _ => None,
    }
}
