//! Responses computed without JavaScript, by a program that `DeclarativeResponse` encodes.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::Body as _;
use pronghorn_engine::{Request, Responder, Response};

use crate::js::Failure;
use crate::router::Parameters;

/// Maximum size in bytes of request content that a program may use; more is answered 413.
const CONTENT_BYTES: usize = 1 << 20;

/// A response in pieces, each either fixed or taken from the request.
#[derive(Debug)]
pub(crate) struct Program {
    fields: Vec<(HeaderName, HeaderValue)>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(Bytes),
    /// The request's content.
    Content,
    Query(String),
    Field(HeaderName),
    /// Index among the parameters of the route.
    Parameter(Option<usize>),
}

impl Program {
    /// Parses a program: operations with their operands, each operand after its length.
    ///
    /// # Errors
    ///
    /// If the program is truncated, or has an invalid field name or value.
    pub(crate) fn parse(mut code: &[u8], parameters: &[&str]) -> Result<Self, Failure> {
        let mut program = Self { fields: Vec::new(), pieces: Vec::new() };
        while let Some((operation, rest)) = code.split_first() {
            code = rest;
            let mut short = || take(&mut code, 1);
            match operation {
                0 => {
                    let text = take(&mut code, 2)?;
                    program.pieces.push(Piece::Text(Bytes::copy_from_slice(text)));
                    return Ok(program);
                }
                1 => {
                    let (name, value) =
                        (HeaderName::from_bytes(short()?)?, HeaderValue::from_bytes(short()?)?);
                    program.fields.push((name, value));
                }
                2 => program.pieces.push(Piece::Content),
                3 => program.pieces.push(Piece::Query(std::str::from_utf8(short()?)?.to_owned())),
                4 => program.pieces.push(Piece::Field(HeaderName::from_bytes(short()?)?)),
                5 => program.pieces.push(Piece::Text(Bytes::copy_from_slice(take(&mut code, 2)?))),
                6 => {
                    let name = std::str::from_utf8(short()?)?;
                    program
                        .pieces
                        .push(Piece::Parameter(parameters.iter().position(|known| *known == name)));
                }
                _ => break,
            }
        }
        Err("invalid handler: it is not the result of DeclarativeResponse.end()".into())
    }

    /// Sends the program's response. If it uses the request's content, the content is read first.
    /// `begun`: a response whose status and fields were set by earlier handlers.
    pub(crate) fn answer(
        self: std::rc::Rc<Self>,
        mut request: Request,
        responder: Responder,
        parameters: &Parameters,
        begun: Response,
    ) {
        // Bytes after an upgrade request are not content.
        if request.upgrade.is_some()
            || !self.pieces.iter().any(|piece| matches!(piece, Piece::Content))
        {
            return responder.send(self.response(begun, &request, parameters, &[]));
        }
        let parameters = parameters.clone();
        responder.respond(async move {
            let mut content = BytesMut::new();
            loop {
                let frame =
                    std::future::poll_fn(|cx| std::pin::Pin::new(&mut request.body).poll_frame(cx))
                        .await;
                match frame {
                    None => return self.response(begun, &request, &parameters, &content),
                    Some(Err(_)) => return Response::new(StatusCode::BAD_REQUEST),
                    Some(Ok(frame)) => {
                        let data = frame.into_data().unwrap_or_default();
                        if content.len() + data.len() > CONTENT_BYTES {
                            return Response::new(StatusCode::PAYLOAD_TOO_LARGE);
                        }
                        content.put(data);
                    }
                }
            }
        });
    }

    fn response(
        &self,
        begun: Response,
        request: &Request,
        parameters: &Parameters,
        content: &[u8],
    ) -> Response {
        let mut body = BytesMut::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => body.put_slice(text),
                Piece::Content => body.put_slice(content),
                Piece::Query(name) => body.put_slice(
                    &query_value(request.uri.query().unwrap_or_default(), name).unwrap_or_default(),
                ),
                Piece::Field(name) => body.put_slice(
                    request.headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default(),
                ),
                Piece::Parameter(index) => {
                    if let Some((begin, end)) = index.and_then(|index| parameters.get(index)) {
                        body.put_slice(
                            &request.uri.path().as_bytes()[*begin as usize..*end as usize],
                        );
                    }
                }
            }
        }
        let mut response = begun.with_body(body.freeze());
        for (name, value) in &self.fields {
            response.headers.append(name, value.clone());
        }
        response
    }
}

/// Takes the operand after a little-endian length of `size` bytes.
fn take<'a>(code: &mut &'a [u8], size: usize) -> Result<&'a [u8], Failure> {
    let cut_off = || Failure("invalid handler: the DeclarativeResponse is truncated".to_owned());
    let (length, rest) = code.split_at_checked(size).ok_or_else(cut_off)?;
    let length = length.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (taken, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    *code = rest;
    Ok(taken)
}

/// Returns the decoded value of the first occurrence of `key`: empty if it has no value, `None` if
/// the key is missing or the value is malformed.
pub(crate) fn query_value(query: &str, key: &str) -> Option<Vec<u8>> {
    if key.is_empty() {
        return None;
    }
    let statement = |statement: &'_ str| {
        let (name, value) = statement.split_once('=').unwrap_or((statement, ""));
        (name == key).then(|| value.to_owned())
    };
    decode(&query.split('&').find_map(statement)?)
}

fn decode(value: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            other => other,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_found_and_decoded() {
        let cases = [
            ("test1=&test2=someValue", "test2", Some("someValue")),
            ("test1=&test2=someValue", "test1", Some("")),
            ("Kest1=&test2=someValue", "test2", Some("someValue")),
            ("Test1=&Kest2=some", "Kest2", Some("some")),
            ("Test1=&Kest2=some", "sdfsdf", None),
            ("Kest1=&test2=some%20Value", "test2", Some("some Value")),
            ("debug&dx=5", "dx", Some("5")),
            ("debug&dx=5", "debug", Some("")),
            ("a=1+2%2B3", "a", Some("1 2+3")),
            ("a=b=c", "a", Some("b=c")),
            ("a=1&a=2", "a", Some("1")),
            ("a=%4", "a", None),
            ("a=%zz", "a", None),
            ("a=%E4%BD%A0", "a", Some("你")),
            ("", "a", None),
            ("=1", "", None),
        ];
        for (query, key, expected) in cases {
            let found = query_value(query, key).map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), expected, "{key} of {query}");
        }
    }

    #[test]
    fn program_that_is_cut_off_is_refused_at_each_byte() {
        let code = b"\x01\x01a\x01b\x05\x02\x00hi\x06\x02id\x03\x01q\x04\x01h\x02\x00\x01\x00!";
        assert_eq!(Program::parse(code, &["id"]).unwrap().pieces.len(), 6);
        for length in 0..code.len() {
            assert!(Program::parse(&code[..length], &["id"]).is_err(), "{length}");
        }
    }
}
