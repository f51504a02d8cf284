//! Any value of any message type, from a seed.
//!
//! A deserializer that reads nothing and draws what is asked for: every variant of every enum,
//! lists of a few elements, numbers of every magnitude. So a new message is generated the day it is
//! added.

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
};
use sim::Random;

/// Most elements of a list.
const LIST_MAX: u64 = 4;
/// Longest text or string of bytes.
const BYTES_MAX: u64 = 60;

/// A value of `T`.
pub(crate) fn generated<T: for<'a> Deserialize<'a>>(seed: u64) -> T {
    T::deserialize(&mut Drawn(Random::new(seed))).expect("every drawn value is a legal one")
}

struct Drawn(Random);

impl Drawn {
    /// A number of at most `bits` bits; small ones and the largest as often as those between.
    fn number(&mut self, bits: u32) -> u64 {
        let all = u64::MAX >> (64 - bits);
        match self.0.below(8) {
            0 => 0,
            1 => all,
            _ => self.0.next_u64() & (u64::MAX >> self.0.within(u64::from(64 - bits)..64)),
        }
    }

    /// Bytes that are a legal name and a legal handle.
    fn bytes(&mut self) -> Vec<u8> {
        let len = self.0.within(1..BYTES_MAX);
        let byte = |_| match self.0.within(1..256) as u8 {
            b'/' | b'.' => b'x',
            byte => byte,
        };
        (0..len).map(byte).collect()
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $bits:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.number($bits) as $type)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Drawn {
    type Error = Error;

    numbers! {
        deserialize_u8 visit_u8 u8, 8;
        deserialize_u16 visit_u16 u16, 16;
        deserialize_u32 visit_u32 u32, 32;
        deserialize_u64 visit_u64 u64, 64;
        deserialize_i8 visit_i8 i8, 8;
        deserialize_i16 visit_i16 i16, 16;
        deserialize_i32 visit_i32 i32, 32;
        deserialize_i64 visit_i64 i64, 64;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.0.chance(0.5))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(&self.bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.bytes())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let letter = |_| {
            *self
                .0
                .pick(&['a', 'Z', '0', '/', '\0', 'é', '日', '\u{10ffff}'])
        };
        let len = LIST_MAX * 2;
        visitor.visit_string((0..len).map(letter).collect())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.chance(0.5) {
            visitor.visit_some(self)
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.0.below(LIST_MAX) as usize;
        visitor.visit_seq(Elements { drawn: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { drawn: self, left })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { drawn: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let left = fields.len();
        visitor.visit_seq(Elements { drawn: self, left })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = self.0.below(variants.len() as u64) as u32;
        visitor.visit_enum(Variant {
            drawn: self,
            variant,
        })
    }

    serde::forward_to_deserialize_any! {
        f32 f64 i128 u128 char map identifier ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        unreachable!("messages have no values of this kind")
    }
}

struct Elements<'a> {
    drawn: &'a mut Drawn,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(&mut *self.drawn).map(Some)
    }
}

struct Variant<'a> {
    drawn: &'a mut Drawn,
    variant: u32,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = &'a mut Drawn;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, &'a mut Drawn), Error> {
        let value = seed.deserialize(IntoDeserializer::<Error>::into_deserializer(self.variant))?;
        Ok((value, self.drawn))
    }
}

impl<'de> VariantAccess<'de> for &mut Drawn {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
