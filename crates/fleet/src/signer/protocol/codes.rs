//! Numbers of the protocol.

use std::fmt;

/// Defines an open newtype of a byte with named values.
macro_rules! codes {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $name:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub u8);

        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#04x}", self.0),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

codes! {
    /// The kind of an item.
    Tag {
        /// SHA-256 of an RSA modulus in hexadecimal form.
        CERTIFICATE_DIGEST = 0x01,
        /// Server name that the TLS client requested.
        SERVER_NAME = 0x02,
        /// Address of the TLS client.
        CLIENT_IP = 0x03,
        /// Identifier of the key.
        SUBJECT_KEY_IDENTIFIER = 0x04,
        /// Address of the TLS server.
        SERVER_IP = 0x05,
        /// Identifier of the certificate.
        CERTIFICATE_ID = 0x06,
        /// Operation, or the kind of a response.
        OPCODE = 0x11,
        /// What is to be signed, or the signature.
        PAYLOAD = 0x12,
        /// Name of a custom function.
        CUSTOM_FUNCTION = 0x13,
        /// Supplement of the payload.
        EXTRA = 0x14,
        /// Trace context.
        JAEGER_SPAN = 0x15,
        /// Metadata of the request.
        REQUEST_CONTEXT = 0x16,
        /// Region of the request.
        COMPLIANCE_REGION = 0x17,
        /// Bytes without a meaning.
        PADDING = 0x20,
    }
}

codes! {
    /// An operation, or the kind of a response.
    Opcode {
        /// RSA decryption without removal of the padding. Refused by [`Server`](super::super::Server).
        RSA_DECRYPT = 0x01,
        /// RSASSA-PKCS1-v1_5 of a SHA-1 digest. Refused.
        RSA_SIGN_SHA1 = 0x03,
        /// RSASSA-PKCS1-v1_5 of a SHA-256 digest.
        RSA_SIGN_SHA256 = 0x05,
        /// RSASSA-PKCS1-v1_5 of a SHA-384 digest.
        RSA_SIGN_SHA384 = 0x06,
        /// RSASSA-PKCS1-v1_5 of a SHA-512 digest.
        RSA_SIGN_SHA512 = 0x07,
        /// ECDSA of a SHA-1 digest. Refused.
        ECDSA_SIGN_SHA1 = 0x13,
        /// ECDSA of a SHA-256 digest.
        ECDSA_SIGN_SHA256 = 0x15,
        /// ECDSA of a SHA-384 digest.
        ECDSA_SIGN_SHA384 = 0x16,
        /// ECDSA of a SHA-512 digest.
        ECDSA_SIGN_SHA512 = 0x17,
        /// RSASSA-PSS of a SHA-256 digest, with a salt of the digest's size.
        RSA_PSS_SIGN_SHA256 = 0x35,
        /// RSASSA-PSS of a SHA-384 digest, with a salt of the digest's size.
        RSA_PSS_SIGN_SHA384 = 0x36,
        /// RSASSA-PSS of a SHA-512 digest, with a salt of the digest's size.
        RSA_PSS_SIGN_SHA512 = 0x37,
        /// Success; the payload is the result.
        RESPONSE = 0xf0,
        /// Test of the connection.
        PING = 0xf1,
        /// Response to `PING`, with the same payload.
        PONG = 0xf2,
        /// Failure; the payload is an [`ErrorCode`].
        ERROR = 0xff,
    }
}

codes! {
    /// The reason of a failure.
    ErrorCode {
        /// No error.
        NONE = 0,
        /// The cryptographic operation failed.
        CRYPTO = 1,
        /// The server has no such key, or not for this client.
        KEY_NOT_FOUND = 2,
        /// The request could not be read.
        READ = 3,
        /// Unsupported version of the protocol.
        VERSION_MISMATCH = 4,
        /// Unsupported operation.
        BAD_OPCODE = 5,
        /// A response was sent as a request.
        UNEXPECTED_OPCODE = 6,
        /// The message is malformed.
        FORMAT = 7,
        /// The server is overloaded, or failed otherwise.
        INTERNAL = 8,
        /// The certificate does not exist.
        CERT_NOT_FOUND = 9,
        /// The sealing key has expired.
        EXPIRED = 10,
        /// The key of the server is on another server, which is not configured correctly.
        REMOTE_CONFIGURATION = 11,
    }
}
