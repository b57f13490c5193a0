//! The plans that come with the program.

/// Names and texts of the plans that come with the program.
pub const PRESETS: [(&str, &str); 2] = [
    ("mdb-paper", include_str!("presets/mdb-paper.plan")),
    ("dvtds", include_str!("presets/dvtds.plan")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, PlanOptions};

    #[test]
    fn presets_can_be_read() {
        for (name, text) in PRESETS {
            let options = PlanOptions {
                settings: vec![("people".to_owned(), "10".to_owned())],
                ..PlanOptions::default()
            };
            let plan = Plan::read(text.as_bytes(), &options).unwrap();
            assert!(plan.phases().count() > 3, "{name}");
        }
    }
}
