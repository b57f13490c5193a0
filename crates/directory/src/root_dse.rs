//! The root DSE (RFC 4512 §5.1): what the server says about itself.

/// What only the server knows of the root DSE.
#[derive(Clone, Debug, Default)]
pub struct RootDse {
    /// OIDs of the controls it supports.
    pub controls: Vec<String>,
    /// OIDs of the extended operations it supports.
    pub extensions: Vec<String>,
    /// OIDs of the features it supports.
    pub features: Vec<String>,
    /// SASL mechanisms it supports.
    pub sasl_mechanisms: Vec<String>,
    /// Name and version of the product.
    pub vendor_version: String,
}
