//! Schema files, as directives and as LDIF, and the schema that comes of them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::schema::SchemaBuilder;

fuzz_target!(|text: &str| {
    let mut builder = SchemaBuilder::new();
    if builder.add_file("fuzz", text).is_ok()
        && let Ok(schema) = builder.build()
    {
        for known in schema.attribute_types() {
            assert!(known.syntax().is_some() && known.subtypes().contains(known.id()));
        }
    }
});
