//! What a message may have at most. Readers refuse what has more before they go on.

/// Largest message ID (RFC 4511 §4.1.1.1).
pub const MESSAGE_ID_MAX: u32 = i32::MAX.cast_unsigned();

/// Largest value of a size limit, a time limit and the like (`maxInt` of RFC 4511 §4.1.1).
pub const INTEGER_MAX: u32 = i32::MAX.cast_unsigned();

/// Most attributes in a search's selection, an add or a modify.
pub const ATTRIBUTES_MAX: usize = 65_536;

/// Most controls on one message.
pub const CONTROLS_MAX: usize = 64;

/// Most levels of and, or, not around a component of a filter. Who walks a filter recursively may rely on it.
pub const FILTER_DEPTH_MAX: usize = 128;

/// Most components of a filter, counting and, or, not themselves.
pub const FILTER_ELEMENTS_MAX: usize = 65_536;

/// Most octets of a filter. Making one ready takes time and memory in proportion, which nothing interrupts.
pub const FILTER_BYTES_MAX: usize = 1 << 20;
