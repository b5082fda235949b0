//! Parameters: the CGI variables as name-value pairs (section 3.4).

use bytes::{BufMut, BytesMut};

/// The encoded parameters of a request. Names that are added twice occur twice.
#[derive(Clone, Debug, Default)]
pub struct Parameters(BytesMut);

impl Parameters {
    /// Adds a parameter.
    ///
    /// # Panics
    ///
    /// If the name or the value is 2 GiB or longer, which a length field cannot express.
    pub fn put(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        for length in [name.len(), value.len()] {
            if length < 0x80 {
                self.0.put_u8(length as u8);
            } else {
                assert!(length < 1 << 31, "a length field has 31 bits");
                // A four-byte length is marked by its first bit.
                self.0.put_u32(length as u32 | 1 << 31);
            }
        }
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
    }

    /// Returns the parameters as encoded in records.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_one_or_four_bytes() {
        let mut parameters = Parameters::default();
        parameters.put("a", "");
        parameters.put("b".repeat(127), "c".repeat(128));
        let encoded = parameters.encoded();
        assert_eq!(encoded[..4], [1, 0, b'a', 127]);
        assert_eq!(encoded[4..8], [0x80, 0, 0, 128]);
        assert_eq!(encoded.len(), 8 + 127 + 128);
    }
}
