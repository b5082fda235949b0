//! Values that have a short form (a string) and a full form (a table).

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value that has a string as a short form.
pub(crate) trait ShortForm: Sized {
    type Table: DeserializeOwned;

    /// Description of both forms, for errors.
    const EXPECTED: &'static str;

    fn from_text(text: &str) -> Result<Self, String>;

    fn from_table(table: Self::Table) -> Self;
}

pub(crate) fn deserialize<'de, T: ShortForm, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct Either<T>(PhantomData<T>);

    impl<'de, T: ShortForm> Visitor<'de> for Either<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::from_text(text).map_err(E::custom)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::Table::deserialize(MapAccessDeserializer::new(map)).map(T::from_table)
        }
    }

    deserializer.deserialize_any(Either(PhantomData))
}

/// Implements deserialization and schema of a [`ShortForm`] type, with examples of the short form.
macro_rules! short_or_table {
    ($type:ty, $name:literal, $($example:literal),+) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::short_form::deserialize(deserializer)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let table = generator.subschema_for::<<$type as super::short_form::ShortForm>::Table>();
                schemars::json_schema!({ "anyOf": [{ "type": "string", "examples": [$($example),+] }, table] })
            }
        }
    };
}
pub(crate) use short_or_table;

/// Schema of a single value or a list of values.
pub(crate) struct OneOrMore<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("one_or_more_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one.clone(), { "type": "array", "items": one }] })
    }
}

/// Deserializes a single value or a list of values.
pub(crate) fn one_or_more<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err = String> + Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Values<T>(PhantomData<T>);

    impl<'de, T: FromStr<Err = String> + Deserialize<'de>> Visitor<'de> for Values<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text, or a list of text values")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
            text.parse().map(|value| vec![value]).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(Values(PhantomData))
}
