//! The entries of `cn=config` that settings stand in.

/// The entry of what holds of all.
pub(crate) const GLOBAL: &str = "cn=config";
/// The entry of the database that has the data.
pub(crate) const DATA: &str = "olcDatabase={1}mdb,cn=config";
/// The entry of what holds of all databases.
pub(crate) const FRONTEND: &str = "olcDatabase={-1}frontend,cn=config";
/// The entry of the schema.
pub(crate) const SCHEMA: &str = "cn=schema,cn=config";
/// The entry of the rules of unique values, if there are any.
pub(crate) const UNIQUE: &str = "olcOverlay={0}unique,olcDatabase={1}mdb,cn=config";
/// The entry of the overlay of password policies, if it is there.
pub(crate) const PASSWORD_POLICY: &str = "olcOverlay={1}ppolicy,olcDatabase={1}mdb,cn=config";
/// The entry of the overlay of one-time passwords, if it is there.
pub(crate) const SECOND_FACTOR: &str = "olcOverlay={2}otp,olcDatabase={1}mdb,cn=config";
/// The entry of referential integrity, if it is there.
pub(crate) const REFINT: &str = "olcOverlay={3}refint,olcDatabase={1}mdb,cn=config";
/// The entry of constraints, if there are any.
pub(crate) const CONSTRAINT: &str = "olcOverlay={5}constraint,olcDatabase={1}mdb,cn=config";
/// The entry of linked attributes, if there are any.
pub(crate) const LINKED: &str = "olcOverlay={10}linked,olcDatabase={1}mdb,cn=config";
/// The entry of rules of members, if there are any.
pub(crate) const AUTOMEMBER: &str = "olcOverlay={9}automember,olcDatabase={1}mdb,cn=config";
/// The entry of managed entries, if there are rules of them.
pub(crate) const MANAGED: &str = "olcOverlay={12}managed,olcDatabase={1}mdb,cn=config";
/// The entry of rules of numbers, if there are any.
pub(crate) const NUMBERS: &str = "olcOverlay={8}numbers,olcDatabase={1}mdb,cn=config";
/// The entry of dynamic entries, if they are there.
pub(crate) const DDS: &str = "olcOverlay={7}dds,olcDatabase={1}mdb,cn=config";
/// The entry of dynamic groups and lists, if there are any.
pub(crate) const DYNLIST: &str = "olcOverlay={6}dynlist,olcDatabase={1}mdb,cn=config";
/// The entry of the order of values, if there is any.
pub(crate) const VALUE_SORT: &str = "olcOverlay={11}valsort,olcDatabase={1}mdb,cn=config";
/// The entry of memberOf, if it is there.
pub(crate) const MEMBER_OF: &str = "olcOverlay={4}memberof,olcDatabase={1}mdb,cn=config";
