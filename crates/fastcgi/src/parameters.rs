//! Parameters: names with values, which are the variables of CGI (section 3.4).

use bytes::{BufMut, BytesMut};

/// The parameters of a request. Names are in it as often as they are put.
#[derive(Clone, Debug, Default)]
pub struct Parameters(BytesMut);

impl Parameters {
    /// Adds one.
    ///
    /// # Panics
    ///
    /// When name or value has 2 GiB, which no length says.
    pub fn put(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        for length in [name.len(), value.len()] {
            if length < 0x80 {
                self.0.put_u8(length as u8);
            } else {
                assert!(length < 1 << 31, "a length has 31 bits");
                // Four bytes are marked by their first bit.
                self.0.put_u32(length as u32 | 1 << 31);
            }
        }
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
    }

    /// As they stand in records.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_a_byte_or_four() {
        let mut parameters = Parameters::default();
        parameters.put("a", "");
        parameters.put("b".repeat(127), "c".repeat(128));
        let encoded = parameters.encoded();
        assert_eq!(encoded[..4], [1, 0, b'a', 127]);
        assert_eq!(encoded[4..8], [0x80, 0, 0, 128]);
        assert_eq!(encoded.len(), 8 + 127 + 128);
    }
}
