//! Values with a fixed form, and pointers to them.
//!
//! What stands in a space has the same form on every machine, and is decoded whenever it is loaded: bytes of a file are
//! never believed to be a structure of this program.

use std::fmt;
use std::marker::PhantomData;

/// A value of a fixed number of bytes, stored in the same form on every machine.
pub trait Fixed {
    /// How many bytes it takes, more than 0.
    const BYTES: usize;

    /// Reads the value from exactly [`Fixed::BYTES`] bytes. Any bytes must give a value.
    fn decode(bytes: &[u8]) -> Self;

    /// Writes the value over exactly [`Fixed::BYTES`] bytes.
    fn encode(&self, bytes: &mut [u8]);
}

macro_rules! fixed_number {
    ($($number:ty),*) => {$(
        impl Fixed for $number {
            const BYTES: usize = size_of::<$number>();

            fn decode(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, <$number>::from_le_bytes)
            }

            fn encode(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

fixed_number!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Fixed for bool {
    const BYTES: usize = 1;

    fn decode(bytes: &[u8]) -> Self {
        bytes != [0]
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&[u8::from(*self)]);
    }
}

impl<const N: usize> Fixed for [u8; N] {
    const BYTES: usize = N;

    fn decode(bytes: &[u8]) -> Self {
        bytes.try_into().unwrap_or([0; N])
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }
}

impl<A: Fixed, B: Fixed> Fixed for (A, B) {
    const BYTES: usize = A::BYTES + B::BYTES;

    fn decode(bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(A::BYTES);
        (A::decode(first), B::decode(second))
    }

    fn encode(&self, bytes: &mut [u8]) {
        let (first, second) = bytes.split_at_mut(A::BYTES);
        self.0.encode(first);
        self.1.encode(second);
    }
}

impl<T> Fixed for Ptr<T> {
    const BYTES: usize = u64::BYTES;

    fn decode(bytes: &[u8]) -> Self {
        Ptr::new(u64::decode(bytes))
    }

    fn encode(&self, bytes: &mut [u8]) {
        self.raw.encode(bytes);
    }
}

/// A typed pointer: where in a memory a `T` is stored. It is the same for all processes, and may itself be stored.
pub struct Ptr<T> {
    raw: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    /// The offset that stands for "nothing".
    pub const NONE: Self = Self::new(0);

    /// The place `raw` bytes from the beginning of the memory.
    pub const fn new(raw: u64) -> Self {
        Self {
            raw,
            kind: PhantomData,
        }
    }

    /// The distance from the beginning of the memory in bytes.
    pub const fn get(self) -> u64 {
        self.raw
    }

    /// Whether it stands for "nothing".
    pub const fn is_none(self) -> bool {
        self.raw == 0
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ptr({})", self.raw)
    }
}

/// Declares structures whose fields are stored one after the other, each in its own form: it derives [`Fixed`], and for
/// each field a function of its name gives a pointer to it.
///
/// ```
/// use sapwood_xact::{Fixed, Memory, Plain, Ptr, fixed};
///
/// fixed! {
///     /// What a customer has.
///     #[derive(Debug, PartialEq)]
///     pub struct Account {
///         pub balance: i64,
///         pub is_open: bool,
///         pub next: Ptr<Account>,
///     }
/// }
///
/// let mut memory = Plain::new();
/// let next = Ptr::NONE;
/// let account = memory.place(&Account { balance: 5, is_open: true, next })?;
/// memory.store(Account::balance(account), &7)?;
/// assert_eq!(memory.load(account)?, Account { balance: 7, is_open: true, next });
/// assert_eq!(Account::BYTES, 17);
/// # Ok::<(), sapwood_xact::Fault>(())
/// ```
#[macro_export]
macro_rules! fixed {
    ($(
        $(#[$about:meta])*
        $visible:vis struct $name:ident {
            $($(#[$about_field:meta])* $visible_field:vis $field:ident: $kind:ty),* $(,)?
        }
    )*) => {$(
        $(#[$about])*
        $visible struct $name {
            $($(#[$about_field])* $visible_field $field: $kind),*
        }

        impl $name {
            const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), <$kind as $crate::Fixed>::BYTES)),*];

            $(
                /// Where this field of a structure is.
                #[allow(dead_code, reason = "a program need not use every field by itself")]
                $visible_field fn $field(at: $crate::Ptr<$name>) -> $crate::Ptr<$kind> {
                    const BEFORE: usize = $crate::bytes_before($name::FIELDS, stringify!($field));
                    $crate::Ptr::new(at.get().saturating_add(BEFORE as u64))
                }
            )*
        }

        impl $crate::Fixed for $name {
            const BYTES: usize = $crate::bytes_before(Self::FIELDS, "");

            fn decode(bytes: &[u8]) -> Self {
                Self {$(
                    $field: $crate::Fixed::decode({
                        let at = const { $crate::bytes_before(Self::FIELDS, stringify!($field)) };
                        &bytes[at..at + <$kind as $crate::Fixed>::BYTES]
                    })
                ),*}
            }

            fn encode(&self, bytes: &mut [u8]) {
                $({
                    let at = const { $crate::bytes_before(Self::FIELDS, stringify!($field)) };
                    let place = &mut bytes[at..at + <$kind as $crate::Fixed>::BYTES];
                    $crate::Fixed::encode(&self.$field, place);
                })*
            }
        }
    )*};
}

/// How many bytes the fields before one take up, or all if there is none of that name. For [`fixed!`](crate::fixed).
#[doc(hidden)]
pub const fn bytes_before(fields: &[(&str, usize)], name: &str) -> usize {
    let (mut bytes, mut index) = (0, 0);
    while index < fields.len() && !is_same(fields[index].0.as_bytes(), name.as_bytes()) {
        bytes += fields[index].1;
        index += 1;
    }
    bytes
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}
