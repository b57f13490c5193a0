//! What is measured.

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
    pub(crate) connections: usize,
    /// Requests under way on each connection.
    pub(crate) queue: usize,
    /// How far ahead Sapwood has to be.
    pub(crate) required: Required,
}

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Every entry of the tree. An operation is an entry.
    Scan,
    /// One random person by name.
    Base,
    /// One random person by `uid`, from the top of the tree.
    Equality,
    /// A new telephone number for a random person, durable when answered.
    Modify,
}

/// The least ratios. For CPU, slapd's per operation through Sapwood's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Required {
    pub(crate) rate: Option<f64>,
    pub(crate) cpu: f64,
}

/// Ahead in both.
const AHEAD: Required = Required {
    rate: Some(1.0),
    cpu: 1.0,
};
/// Far ahead in what a request costs.
const FAR_AHEAD: Required = Required {
    rate: Some(1.0),
    cpu: 4.0,
};
/// One request at a time: the machine's wake-up cost decides the rate.
const CHEAPER: Required = Required {
    rate: None,
    cpu: 1.0,
};

/// The table, top down.
pub(crate) const ROWS: &[Row] = &[
    row("whole tree, (objectClass=*)", Work::Scan, 1, 1, FAR_AHEAD),
    row("base search, queue 1", Work::Base, 1, 1, CHEAPER),
    row(
        "base search, queue 1, 8 connections",
        Work::Base,
        8,
        1,
        AHEAD,
    ),
    row(
        "base search, queue 1000, 4 connections",
        Work::Base,
        4,
        1000,
        FAR_AHEAD,
    ),
    row("equality search, queue 1", Work::Equality, 1, 1, CHEAPER),
    row(
        "equality search, queue 1, 8 connections",
        Work::Equality,
        8,
        1,
        AHEAD,
    ),
    row(
        "equality search, queue 1000, 4 connections",
        Work::Equality,
        4,
        1000,
        FAR_AHEAD,
    ),
    row("modify, queue 1", Work::Modify, 1, 1, AHEAD),
    row("modify, queue 1, 8 connections", Work::Modify, 8, 1, AHEAD),
    row(
        "modify, queue 1, 32 connections",
        Work::Modify,
        32,
        1,
        AHEAD,
    ),
    row("modify, queue 1000", Work::Modify, 1, 1000, AHEAD),
];

const fn row(
    name: &'static str,
    work: Work,
    connections: usize,
    queue: usize,
    required: Required,
) -> Row {
    Row {
        name,
        work,
        connections,
        queue,
        required,
    }
}
