//! What is measured: each row is a plan of the load client.

use crate::server::Shape;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The entries it is measured on.
    pub(crate) shape: Shape,
    /// What is done before, not measured.
    pub(crate) prepare: Option<&'static str>,
    /// One phase. It may use the settings `suffix`, `people`, `entries` and `seed`.
    pub(crate) plan: &'static str,
    /// What an operation is: an answered request, or an entry that came.
    pub(crate) unit: Unit,
    /// Whether it writes: it runs longer, and bytes written are reported.
    pub(crate) is_write: bool,
    /// Whether only a server with transactions (RFC 5805) can do it.
    pub(crate) needs_transactions: bool,
    /// Why slapd cannot do it.
    pub(crate) slapd_fails: Option<&'static str>,
    pub(crate) required: Required,
    pub(crate) aim: Aim,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Operations,
    Entries,
}

/// What has to be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Required {
    /// So many times slapd's rate.
    Rate(f64),
    /// Slapd's CPU per operation is so many times Sapwood's.
    Cpu(f64),
    /// Slapd's CPU per operation is so many times Sapwood's, and the rate is at least slapd's.
    Ahead { cpu: f64 },
    /// Sapwood's CPU per operation is at most so many microseconds, and slapd's at least so many times as much.
    CpuMost { us: f64, ratio: Option<f64> },
    /// CPU per operation is at most so many times that of another row.
    CpuOfRow { row: &'static str, times: f64 },
    /// The threads of sessions take for each request at most `cpu` times what they take for the reads alone, and the
    /// 99th percentile of the reads is at most `p99` times as long.
    Beside {
        alone: &'static str,
        cpu: f64,
        p99: f64,
    },
    /// Nothing: the row is there for another, or for comparison.
    Nothing,
}

/// What is hoped for beyond that, in the measure of what is required.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    Nothing,
    /// This number in place of the first one that is required.
    Number(f64),
    /// At most so many times the CPU of a server that sends the same bytes from a buffer.
    TimesBuffer(f64),
}

/// The row whose bytes are also sent from a buffer.
pub(crate) const SCAN: &str = "whole tree, (objectClass=*)";
const READS: &str = "equality search, queue 1, 8 connections, alone";

/// DVTDS answered 38,000 searches a second with one virtual core of its machines, and did as many modifies in
/// transactions in memory, 20,000 on disk.
const DVTDS_SEARCH: Required = Required::CpuMost {
    us: 26.3,
    ratio: None,
};
const DVTDS_MODIFY: Required = Required::CpuMost {
    us: 50.0,
    ratio: None,
};
const DVTDS_MODIFY_IN_MEMORY: Required = DVTDS_SEARCH;

/// How reads name themselves, also where a row writes as well.
pub(crate) const READ: &str = "read";

/// Variables and operations that rows share.
macro_rules! random {
    () => {
        "let: n = random 1..${people}\nlet: plate = characters 8 ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n\n"
    };
}
macro_rules! base {
    () => {
        "name: read\nexpect-entries: 1\nsearch: uid=u${n:8},${suffix}\nscope: base\n\n"
    };
}
macro_rules! equality {
    () => {
        "name: read\nexpect-entries: 1\nsearch: ${suffix}\nfilter: (uid=u${n:8})\n\n"
    };
}
macro_rules! modify {
    () => {
        "name: write\ndn: uid=u${n:8},${suffix}\nchangetype: modify\nreplace: carLicense\ncarLicense: ${plate}\n\n"
    };
}

macro_rules! dvtds {
    ($session:literal, $($operation:expr),+) => {
        concat!(
            random!(),
            "session: s\nconnections: 4\nqueue: 1000\n",
            $session,
            "\n",
            $($operation),+
        )
    };
}
macro_rules! org_base {
    ($session:literal) => {
        concat!(
            "let: dn = random org dn ${suffix} ${entries} ${seed}\n\nsession: s\n",
            $session,
            "\nname: read\nexpect-entries: 1\nsearch: ${dn}\nscope: base\n"
        )
    };
}
macro_rules! org_equality {
    ($session:literal) => {
        concat!(
            "let: uid = random org uid ${suffix} ${entries} ${seed}\n\nsession: s\n",
            $session,
            "\nname: read\nexpect-entries: 1\nsearch: ${suffix}\nfilter: (uid=${uid})\n"
        )
    };
}
macro_rules! org_modify {
    ($session:literal) => {
        concat!(
            "let: dn = random org dn ${suffix} ${entries} ${seed}\nlet: number = random 1000000..9999999\n\nsession: s\n",
            $session,
            "\nname: write\ndn: ${dn}\nchangetype: modify\nreplace: telephoneNumber\ntelephoneNumber: +49 30 ${number}\n"
        )
    };
}

/// The table, top down.
pub(crate) const ROWS: &[Row] = &[
    row(
        SCAN,
        Shape::Flat,
        "session: s\n\nexpect-entries: ${entries}\nsearch: ${suffix}\n",
        Required::CpuMost {
            us: 0.35,
            ratio: Some(6.0),
        },
    )
    .counts_entries()
    .aims_at_buffer(1.3),
    row(
        "whole tree, 16 at once",
        Shape::Flat,
        "session: s\nconnections: 16\n\nexpect-entries: ${entries}\nsearch: ${suffix}\n",
        Required::CpuOfRow {
            row: SCAN,
            times: 1.15,
        },
    )
    .counts_entries(),
    row(
        "base search, queue 1, 8 connections",
        Shape::Flat,
        concat!(random!(), "session: s\nconnections: 8\n\n", base!()),
        Required::Cpu(2.5),
    )
    .aims(3.0),
    row(
        "base search, queue 1000, 4 connections",
        Shape::Flat,
        concat!(random!(), "session: s\nconnections: 4\nqueue: 1000\n\n", base!()),
        Required::Cpu(8.0),
    )
    .aims(15.0),
    row(
        "equality search, queue 1, 8 connections",
        Shape::Flat,
        concat!(random!(), "session: s\nconnections: 8\n\n", equality!()),
        Required::Cpu(2.5),
    )
    .aims(3.0),
    row(
        "equality search, queue 1000, 4 connections",
        Shape::Flat,
        concat!(random!(), "session: s\nconnections: 4\nqueue: 1000\n\n", equality!()),
        Required::Cpu(8.0),
    )
    .aims(15.0),
    row(
        "simple bind with {SSHA}, random users, 8 connections",
        Shape::Flat,
        "let: n = random 1..1000\n\nsession: s\nconnections: 8\n\nbind: uid=u${n:8},${suffix}\npassword: secret\n",
        Required::Cpu(2.0),
    )
    .aims(3.0)
    .prepared(
        "let: n = sequence 1..1000\n\nsession: s\nqueue: 100\ncount: 1000\n\ndn: uid=u${n:8},${suffix}\n\
         changetype: modify\nreplace: userPassword\nuserPassword: {SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==\n",
    ),
    row(
        "modify, queue 1, 32 connections",
        Shape::Flat,
        concat!(random!(), "session: s\nconnections: 32\n\n", modify!()),
        Required::Rate(8.0),
    )
    .aims(20.0)
    .writes(),
    row(
        "modify, queue 1000",
        Shape::Flat,
        concat!(random!(), "session: s\nqueue: 1000\n\n", modify!()),
        Required::Rate(30.0),
    )
    .aims(60.0)
    .writes(),
    row(
        "mixed 50/50, queue 1000",
        Shape::Flat,
        concat!(random!(), "session: s\nqueue: 1000\norder: random\n\n", base!(), modify!()),
        Required::Rate(20.0),
    )
    .aims(50.0)
    .writes(),
    row(
        "modify in transactions of 1000",
        Shape::Flat,
        concat!(random!(), "session: s\nqueue: 1000\ntransaction: 1000\n\n", modify!()),
        Required::CpuMost {
            us: 10.0,
            ratio: None,
        },
    )
    .aims(5.0)
    .writes()
    .in_transactions(),
    row(
        READS,
        Shape::Flat,
        concat!(random!(), "session: s\nconnections: 8\n\n", equality!()),
        Required::Nothing,
    ),
    row(
        "equality search, queue 1, 8 connections, beside 5,000 modifies/s",
        Shape::Flat,
        concat!(
            random!(),
            "session: r\nconnections: 8\n\n",
            equality!(),
            "session: w\nconnections: 8\nqueue: 200\nrate: 5000\n\n",
            modify!()
        ),
        Required::Beside {
            alone: READS,
            cpu: 1.15,
            p99: 2.0,
        },
    )
    .writes(),
    row(
        "org: whole tree, (objectClass=*)",
        Shape::Org,
        "session: s\n\nexpect-entries: ${entries}\nsearch: ${suffix}\n",
        Required::Ahead { cpu: 4.0 },
    )
    .counts_entries(),
    row(
        "org: base search, queue 1",
        Shape::Org,
        org_base!(""),
        Required::Cpu(1.0),
    ),
    row(
        "org: base search, queue 1, 8 connections",
        Shape::Org,
        org_base!("connections: 8\n"),
        Required::Ahead { cpu: 1.0 },
    ),
    row(
        "org: base search, queue 1000, 4 connections",
        Shape::Org,
        org_base!("connections: 4\nqueue: 1000\n"),
        Required::Ahead { cpu: 4.0 },
    ),
    row(
        "org: equality search, queue 1",
        Shape::Org,
        org_equality!(""),
        Required::Cpu(1.0),
    ),
    row(
        "org: equality search, queue 1, 8 connections",
        Shape::Org,
        org_equality!("connections: 8\n"),
        Required::Ahead { cpu: 1.0 },
    ),
    row(
        "org: equality search, queue 1000, 4 connections",
        Shape::Org,
        org_equality!("connections: 4\nqueue: 1000\n"),
        Required::Ahead { cpu: 4.0 },
    ),
    row(
        "org: modify, queue 1",
        Shape::Org,
        org_modify!(""),
        Required::Ahead { cpu: 1.0 },
    )
    .writes(),
    row(
        "org: modify, queue 1, 8 connections",
        Shape::Org,
        org_modify!("connections: 8\n"),
        Required::Ahead { cpu: 1.0 },
    )
    .writes(),
    row(
        "org: modify, queue 1, 32 connections",
        Shape::Org,
        org_modify!("connections: 32\n"),
        Required::Ahead { cpu: 1.0 },
    )
    .writes(),
    row(
        "org: modify, queue 1000",
        Shape::Org,
        org_modify!("queue: 1000\n"),
        Required::Ahead { cpu: 1.0 },
    )
    .writes(),
    row(
        "org: add one by one, 8 connections",
        Shape::Org,
        "let: n = sequence 1..100000000\nlet: given = random list Adam Alice Carlos Emma Jin Karim Louise Nadia Omar Petra\n\
         let: sn = characters 7 abcdefghijklmnoprstuvwz\nlet: phone = random 1000000..9999999\n\n\
         session: s\nconnections: 8\n\nname: write\ndn: uid=new${n},ou=Groups,${suffix}\nobjectClass: top\nobjectClass: person\n\
         objectClass: organizationalPerson\nobjectClass: inetOrgPerson\n\
         uid: new${n}\ncn: ${given} ${sn}\nsn: ${sn}\ngivenName: ${given}\ndisplayName: ${sn}, ${given}\n\
         mail: ${given}.${sn}.${n}@example.com\ntelephoneNumber: +49 30 ${phone}\nemployeeNumber: ${n}\ntitle: Engineer\n\
         departmentNumber: 1042\nl: Hamburg\nstreet: Main Street 5\npostalCode: 20095\n\
         description: New since this spring\n",
        Required::Rate(50.0),
    )
    .aims(200.0)
    .writes(),
    row(
        "dvtds: base search, queue 1000, 4 connections",
        Shape::Dvtds,
        dvtds!("", base!()),
        DVTDS_SEARCH,
    ),
    row(
        "dvtds: mixed 50/50, queue 1000, 4 connections",
        Shape::Dvtds,
        dvtds!("order: random\n", base!(), modify!()),
        Required::Nothing,
    )
    .writes(),
    row(
        "dvtds: modify, queue 1000, 4 connections",
        Shape::Dvtds,
        dvtds!("", modify!()),
        Required::Nothing,
    )
    .writes(),
    row(
        "dvtds: modify in transactions of 1000, 4 connections",
        Shape::Dvtds,
        dvtds!("transaction: 1000\n", modify!()),
        DVTDS_MODIFY,
    )
    .writes()
    .in_transactions()
    .not_by_slapd("slapd 2.5 closes its connections when several have transactions at once"),
    row(
        "dvtds in memory: base search, queue 1000, 4 connections",
        Shape::DvtdsInMemory,
        dvtds!("", base!()),
        DVTDS_SEARCH,
    ),
    row(
        "dvtds in memory: mixed 50/50, queue 1000, 4 connections",
        Shape::DvtdsInMemory,
        dvtds!("order: random\n", base!(), modify!()),
        Required::Nothing,
    )
    .writes(),
    row(
        "dvtds in memory: modify, queue 1000, 4 connections",
        Shape::DvtdsInMemory,
        dvtds!("", modify!()),
        Required::Nothing,
    )
    .writes(),
    row(
        "dvtds in memory: modify in transactions of 1000, 4 connections",
        Shape::DvtdsInMemory,
        dvtds!("transaction: 1000\n", modify!()),
        DVTDS_MODIFY_IN_MEMORY,
    )
    .writes()
    .in_transactions(),
];

const fn row(name: &'static str, shape: Shape, plan: &'static str, required: Required) -> Row {
    Row {
        name,
        shape,
        prepare: None,
        plan,
        unit: Unit::Operations,
        is_write: false,
        needs_transactions: false,
        slapd_fails: None,
        required,
        aim: Aim::Nothing,
    }
}

impl Row {
    const fn counts_entries(self) -> Self {
        Row {
            unit: Unit::Entries,
            ..self
        }
    }

    const fn prepared(self, plan: &'static str) -> Self {
        Row {
            prepare: Some(plan),
            ..self
        }
    }

    const fn writes(self) -> Self {
        Row {
            is_write: true,
            ..self
        }
    }

    const fn aims(self, number: f64) -> Self {
        Row {
            aim: Aim::Number(number),
            ..self
        }
    }

    const fn aims_at_buffer(self, times: f64) -> Self {
        Row {
            aim: Aim::TimesBuffer(times),
            ..self
        }
    }

    const fn in_transactions(self) -> Self {
        Row {
            needs_transactions: true,
            ..self
        }
    }

    const fn not_by_slapd(self, reason: &'static str) -> Self {
        Row {
            slapd_fails: Some(reason),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan;

    #[test]
    fn the_plans_of_the_rows_can_be_read() {
        for row in ROWS {
            for text in [Some(row.plan), row.prepare].into_iter().flatten() {
                let read = plan(text, row.shape, 100, 1);
                assert_eq!(read.unwrap().phases().count(), 1, "{}", row.name);
            }
        }
    }

    #[test]
    fn rows_that_others_need_come_before_them() {
        for (place, row) in ROWS.iter().enumerate() {
            let needed = match row.required {
                Required::CpuOfRow { row, .. } => vec![row],
                Required::Beside { alone, .. } => vec![alone],
                _ => Vec::new(),
            };
            for name in needed {
                assert!(
                    ROWS[..place].iter().any(|other| other.name == name),
                    "{name}"
                );
            }
        }
    }
}
