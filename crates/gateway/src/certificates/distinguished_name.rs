//! Distinguished names of certificates as text (RFC 4514).

use std::fmt::Write as _;

use x509_parser::der_parser::asn1_rs::{Any, Class, Tag};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Attributes with a short name: those of RFC 4514, of RFC 4519, and the one of RFC 2985 for e-mail
/// addresses.
const NAMES: [(&str, &str); 14] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "givenName"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Formats a name, its last part first. A value never looks like another attribute: besides the
/// required escapes, `=` is escaped, for readers that search the text for attributes.
pub(crate) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter().collect();
    for (index, part) in parts.iter().rev().enumerate() {
        if index > 0 {
            text.push(',');
        }
        for (index, attribute) in part.iter().enumerate() {
            if index > 0 {
                text.push('+');
            }
            write_attribute(&mut text, attribute);
        }
    }
    text
}

fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let oid = attribute.attr_type().to_id_string();
    let name = NAMES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
    text.push_str(name.unwrap_or(&oid));
    text.push('=');
    match (name, string(attribute.attr_value())) {
        (Some(_), Some(value)) => write_escaped(text, value),
        // Values without a known text form, and values of unknown attributes, are written as
        // hexadecimal DER.
        _ => write_encoding(text, attribute.attr_value()),
    }
}

/// Returns the text of a value whose type has an unambiguous text form.
fn string<'a>(value: &'a Any<'_>) -> Option<&'a str> {
    let is_text = matches!(
        value.tag(),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString
    );
    std::str::from_utf8(value.data).ok().filter(|_| is_text && value.class() == Class::Universal)
}

fn write_escaped(text: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (index, character) in value.char_indices() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => text.extend(['\\', character]),
            '#' if index == 0 => text.push_str("\\#"),
            ' ' if index == 0 || index == last => text.push_str("\\ "),
            ' '..='~' => text.push(character),
            // Characters that a header field cannot carry, or that readers interpret differently.
            _ => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
        }
    }
}

fn write_encoding(text: &mut String, value: &Any<'_>) {
    let (class, constructed) = (value.class() as u32, u32::from(value.header.is_constructed()));
    let mut encoding = vec![
        u8::try_from(class << 6 | constructed << 5 | value.tag().0.min(0x1F)).unwrap_or(u8::MAX),
    ];
    let length = value.data.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => encoding.push(short),
        _ => {
            let bytes: Vec<_> =
                length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            encoding.push(0x80 | u8::try_from(bytes.len()).unwrap_or_default());
            encoding.extend(bytes);
        }
    }
    text.push('#');
    for byte in encoding.iter().chain(value.data) {
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use x509_parser::certificate::X509Certificate;
    use x509_parser::prelude::FromDer as _;

    use super::*;

    fn subject(parts: &[(DnType, &str)]) -> String {
        let mut name = DistinguishedName::new();
        for (kind, value) in parts {
            name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        let certificate =
            params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        let (_, parsed) = X509Certificate::from_der(certificate.der()).expect("it is one");
        text(parsed.subject())
    }

    #[test]
    fn value_is_never_another_attribute() {
        for (value, expected) in [
            ("bob", "CN=bob"),
            ("bob, OU=admins, CN=root", r"CN=bob\, OU\=admins\, CN\=root"),
            ("a+b;c<d>e\"f\\g", r#"CN=a\+b\;c\<d\>e\"f\\g"#),
            (" #a ", r"CN=\ #a\ "),
            ("#a#", r"CN=\#a#"),
            (" ", r"CN=\ "),
            ("Zo\u{eb}\r\n\0", r"CN=Zo\C3\AB\0D\0A\00"),
            ("", "CN="),
        ] {
            assert_eq!(subject(&[(DnType::CommonName, value)]), expected, "{value:?}");
        }
    }

    #[test]
    fn last_part_comes_first_and_unknown_attributes_are_numbers() {
        let parts = [
            (DnType::CountryName, "NZ"),
            (DnType::OrganizationName, "A, Inc."),
            (DnType::CommonName, "kea"),
        ];
        assert_eq!(subject(&parts), r"CN=kea,O=A\, Inc.,C=NZ");
        let own = DnType::CustomDnType(vec![1, 2, 3, 4]);
        assert_eq!(subject(&[(own.clone(), "a=b")]), "1.2.3.4=#0c03613d62");
        let long = subject(&[(own, &"x".repeat(300))]);
        assert!(long.starts_with("1.2.3.4=#0c82012c78787878"), "{long}");
    }
}
