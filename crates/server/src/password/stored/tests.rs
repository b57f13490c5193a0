//! The values were made with other programs: those of digests and PBKDF2 with Python's `hashlib` and `base64`, those of
//! `crypt` with libxcrypt's `crypt(3)`, called through Python's `ctypes`, unless it is said otherwise.

use super::*;

#[track_caller]
fn accepts(password: &str, stored: &str) {
    accepts_bytes(password.as_bytes(), stored);
}

#[track_caller]
fn accepts_bytes(password: &[u8], stored: &str) {
    let parsed = StoredPassword::parse(stored.as_bytes()).unwrap();
    assert!(parsed.matches(password), "{stored}");
    let other = [b"!", password].concat();
    assert!(!parsed.matches(&other), "{stored}");
    assert!(!matches!(parsed, StoredPassword::Clear(_)));
}

#[track_caller]
fn refused(stored: &str) -> PasswordError {
    StoredPassword::parse(stored.as_bytes()).expect_err(stored)
}

#[test]
fn digests_with_and_without_salt() {
    accepts("secret", "{MD5}Xr4ilOzQ4PCOq3aQ0qbuaQ==");
    accepts("secret", "{SMD5}UsKZVoBPf0PRiv7t30XEqsjJysvMzc7P");
    accepts("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=");
    accepts("secret", "{SSHA}uHVurLPaTVPboZtsce8c8nZ6/jvIycrLzM3Ozw==");
    accepts(
        "secret",
        "{SHA256}K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=",
    );
    accepts(
        "secret",
        "{SSHA256}914Lnts+kpxwY4TsWm3QKe3pMtYh+0ju4DNi8qMy59LIycrLzM3Ozw==",
    );
    accepts(
        "secret",
        "{SHA384}WKd1ukESvjAFrkQHznV9iP2nHUBJe7gCbsrFTU4//HIyzo3jq1rLMK45dg/ufFPt",
    );
    accepts(
        "secret",
        "{SSHA384}KxE1jMKIlBkgab7Z8+XPFBrzAHT8BVhKA5JTL/mNbbMRI8XWUCBN84Bx4ak3ain0yMnKy8zNzs8=",
    );
    accepts(
        "secret",
        "{SHA512}vSsar3708Jvp9Szi2NWZZ02Bqp1qRCFpbcTZPdBhnWgs5WtNZKnvCXdhztmeD2cmW192CF5bDufKRpayrW/isg==",
    );
    accepts(
        "secret",
        "{SSHA512}EBgmXsi0bxpTaXAkRElsy4d8/SZueh18elMh23zUxB6IlWrBFyc+nkjrekPaEkIcL988kdfwRjirJspCl/ssUMjJysvMzc7P",
    );
    accepts("secret", "{ssha}uHVurLPaTVPboZtsce8c8nZ6/jvIycrLzM3Ozw");
}

#[test]
fn pbkdf2() {
    accepts(
        "secret",
        "{PBKDF2}10000$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs",
    );
    accepts(
        "secret",
        "{PBKDF2-SHA1}10000$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs",
    );
    accepts(
        "secret",
        "{PBKDF2-SHA256}10000$yMnKy8zNzs/IycrLzM3Ozw$9wodRz7QEeHxrgshFtNkuQuGvj3mBT78xNyRer0H0PU",
    );
    accepts(
        "secret",
        "{PBKDF2-SHA512}10000$yMnKy8zNzs/IycrLzM3Ozw$t2fP.p1p94/9RYgUuZchWK5FlVAT.3z.dpc2BkT3Nt9QUmH3UT8JO7zKoDFBYgiA4IiRBvHwLfBCSZLArB3gmw",
    );
}

#[test]
fn sha_crypt() {
    accepts(
        "Hello world!",
        "{CRYPT}$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
    );
    accepts(
        "Hello world!",
        "{CRYPT}$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
    );
    accepts(
        "Hello world!",
        "{CRYPT}$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.",
    );
    accepts(
        "geheim",
        "{crypt}$5$rounds=1234$abc$7h1J/fcyqri7IayU/D/S7C42nAqHE.GOJO4OAJc3Kw8",
    );
}

#[test]
fn bcrypt() {
    accepts(
        "U*U",
        "{BCRYPT}$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
    );
    accepts(
        "U*U",
        "{CRYPT}$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
    );
    accepts(
        "secret",
        "{BCRYPT}$2b$06$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC",
    );
}

#[test]
fn argon2_of_the_reference_implementation() {
    accepts(
        "password",
        "{ARGON2}$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
    );
}

/// `hashlib.pbkdf2_hmac(name, b"secret", bytes(range(100, 124)), 10000, length)`, salt and key with `base64.b64encode`,
/// as the plugin pwdchan of 389 Directory Server writes them.
#[test]
fn pbkdf2_as_389_directory_server_writes_it() {
    accepts(
        "secret",
        "{PBKDF2-SHA1}10000$ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7$xkpvg9guBnQmEH5trjYeUxmw1pU=",
    );
    accepts(
        "secret",
        "{PBKDF2-SHA256}10000$ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7$WVgxWzlUAebp/FZ8QiJGoV5hoNEhPxohGa/UzF1Z/2w=",
    );
    accepts(
        "secret",
        "{PBKDF2-SHA512}10000$ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7$j4uu+nEoWdHEoXHxe7F00V9Oc9OaP1mntpfmUPr0JYv1uHykHuvfJQq/XjMPU9bqQ3g9jGF2QydBzg/Zvw+uMw==",
    );
    // (8192).to_bytes(4, "big") + salt + hashlib.pbkdf2_hmac("sha256", b"secret", salt, 8192, 256), salt =
    // bytes(range(64))
    accepts(
        "secret",
        "{PBKDF2_SHA256}AAAgAAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj9FKBS6m7TExSuAJiyoIo6buHCdTniKYddCVSU48x9PTMGH/YayBx1Ttye7tLUODNsDsnZR4EA6i8EuJyRKRf+dn4d80cmT9qZY6cuy0RcMNlIw2XrBYYsx6h0wTx4We0qrybs1C3RuKjwqRyWKqb/VJ8EOeP5gaIfxhbmiTe5mZUuWT1sBqwwGGWAEeElTBJr2GUSbNiR+inRM8acOyoqDqhSXRUO1Jrc5nY2HdoYDrsWX5W5ArfkvSd8a/jOI3NP9ZO5N8Sf6pX4WbCD99ZGnOtyhlwl746qdbCXyk5vYVKqvtNWi4PwgQ7dbujmWuwmE6rsPMAV7qjwFEBGFXx03",
    );
}

/// `crypt(b"secret", salt)`, and of `bytes(range(1, 201))`.
#[test]
fn crypt_of_libxcrypt() {
    let long: Vec<u8> = (1..=200).collect();
    for (secret, of_long) in [
        ("abNANd1rDfiNc", "abtrW0Fly4.vA"),
        (
            "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
            "$1$salt$Sls.A39XhoLuFRDiaa9ZX.",
        ),
        (
            "$5$rounds=1500$abc$j9w6LBQPE6AGku.HVeWrSe6UrEwQo9.381p/0OfNtN0",
            "$5$salt$aJOGzG.yj9rJIFxWOZpqcWFHVyQyrlR3aSkTa6pQt38",
        ),
        (
            "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
            "$6$salt$TMpij6cHVl45Wi1J2vkk9XJe/ZnANK8/XXKDs88/GOU6/l0pyz5vzxxllyvnKpeJVsPF7rfSPzb3lUZmXT8wq/",
        ),
        (
            "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$GmcwIgvdUC9qLWcKCi6gklUa1dM3ziD43YxYNURLKy0",
            "$y$j75$abcdefgh$7GxUtqT0whGuqO4wCrEo9Pb70rlAQM3eS2df8k8c5c8",
        ),
    ] {
        accepts("secret", &format!("{{CRYPT}}{secret}"));
        accepts_bytes(&long, &format!("{{crypt}}{of_long}"));
    }
    for stored in [
        "./17m29LFAflg",
        "zZ5x4y8hS4SZE",
        "$1$x$0AXOYAuOs.uNCmG2qRI8W.",
        "$1$$ysVNzQc4CTMkp5daOdZ.3/",
        "$y$j75$abcdefghijklmnopqrstu.$cQjAYfMwB51ACkjNBqV7OEAUemp/TRZgJmoQ3b5QsN8",
        "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$6$rounds=1000$x$0iXvTPIWVHkg6yoVSlOTcEY0CyViwhXpPrHUJOuoFLKbBcWM9S03ZrCHmIxN51kGulOHuZE.4YQhTW5l/ghNC.",
    ] {
        accepts("secret", &format!("{{CRYPT}}{stored}"));
    }
    // DES looks at eight bytes, and at seven bits of each.
    let long = "pässwörd of forty-eight bytes, more than eight !!";
    accepts(long, "{CRYPT}abzp3RXJm5gNA");
    accepts(long, "{CRYPT}$1$$IoRmRt.uFLLZvgWpOzBro/");
    accepts("", "{CRYPT}abmF1QH4PEr.E");
    accepts("", "{CRYPT}$1$abcdefgh$M55TzYaaccxVGbptZWaxX/");
}

#[test]
fn a_stored_hash_cannot_ask_for_endless_work() {
    let hash = "A".repeat(43);
    for stored in [
        format!("{{ARGON2}}$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHQ${hash}"),
        format!("{{ARGON2}}$argon2id$v=19$m=65536,t=4294967295,p=1$c29tZXNhbHQ${hash}"),
        format!("{{CRYPT}}$6$rounds=999999999$salt${}", "A".repeat(86)),
        format!("{{CRYPT}}$5$rounds=4000000$salt${hash}"),
        format!("{{CRYPT}}$y$jFT$salt${hash}"),
        format!("{{CRYPT}}$y$jzT$salt${hash}").replace("jz", "jj"),
        "{BCRYPT}$2b$31$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u".into(),
        "{CRYPT}$2y$15$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u".into(),
        format!("{{PBKDF2-SHA256}}4294967295$c2FsdA${hash}"),
        format!("{{PBKDF2_SHA256}}//////{}", "A".repeat(426)),
    ] {
        let error = refused(&stored);
        assert!(
            matches!(error, PasswordError::TooCostly { .. }),
            "{stored}: {error}"
        );
    }
}

/// A password may be long, and what is repeated with it a million times is then dear.
#[test]
fn work_grows_with_the_password() {
    let stored = format!("{{CRYPT}}$6$rounds=700000$salt${}", "A".repeat(86));
    let stored = StoredPassword::parse(stored.as_bytes()).unwrap();
    assert!(stored.work(64) <= VALUE_WORK_MAX && stored.work(1024) > VALUE_WORK_MAX);
}

#[test]
fn what_no_password_can_match_is_refused() {
    let unknown = PasswordError::UnknownScheme {
        scheme: "SASL".into(),
    };
    assert_eq!(refused("{SASL}x@Y"), unknown);
    for stored in [
        "{KERBEROS}x",
        "{FOO}",
        "{CLEARTEXT}x",
        "{CLEAR}x",
        "{x-y_z/1.2}3",
    ] {
        let error = refused(stored);
        assert!(
            matches!(error, PasswordError::UnknownScheme { .. }),
            "{stored}: {error}"
        );
    }
    for stored in [
        "{CRYPT}",
        "{CRYPT}text",
        "{crypt}abNANd1rDfiN",
        "{crypt}abNANd1rDfiNc.",
        "{crypt}ab:ANd1rDfiNc",
        "{CRYPT}_J9..rasmz0.F/jqjWck",
        "{CRYPT}$1$abcdefghi$cHJi5PXp/ki/ktXzqlk6I1",
        "{CRYPT}$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I",
        "{CRYPT}$2x$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "{CRYPT}$2b$",
        "{CRYPT}$2b$03$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "{CRYPT}$5$rounds=999$abc$j9w6LBQPE6AGku.HVeWrSe6UrEwQo9.381p/0OfNtN0",
        "{CRYPT}$5$rounds=+5000$abc$j9w6LBQPE6AGku.HVeWrSe6UrEwQo9.381p/0OfNtN0",
        "{CRYPT}$5$seventeen letters$j9w6LBQPE6AGku.HVeWrSe6UrEwQo9.381p/0OfNtN0",
        "{CRYPT}$7$CU..../....x$j9eKCY0Ry1UikAjRAAL5zfP74zvS04XeH83qLMEwsu9",
        "{CRYPT}$y$jzz$abc$cQjAYfMwB51ACkjNBqV7OEAUemp/TRZgJmoQ3b5QsN8",
        "{CRYPT}$y$j95.0$abc$cQjAYfMwB51ACkjNBqV7OEAUemp/TRZgJmoQ3b5QsN8",
        "{CRYPT}$y$zzz$abc$cQjAYfMwB51ACkjNBqV7OEAUemp/TRZgJmoQ3b5QsN8",
    ] {
        assert_eq!(refused(stored), PasswordError::UnknownCrypt, "{stored}");
    }
    for stored in [
        "{SSHA}",
        "{SSHA}!!!",
        // Without a salt.
        "{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
        // With one.
        "{SHA}uHVurLPaTVPboZtsce8c8nZ6/jvIycrLzM3Ozw==",
        "{SHA}AAAA",
        "{ARGON2}",
        "{BCRYPT}$2b$",
        "{BCRYPT}$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
        "{PBKDF2}0$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs",
        "{PBKDF2}1000$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs$",
        "{PBKDF2}1000$yMnKy8zNzs/IycrLzM3Ozw$AA",
        "{PBKDF2_SHA256}AAAnEA==",
        "{ARGON2}$argon2id$v=19$m=65536,t=2,p=1$c29t$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
        "{ARGON2}$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$AAAA",
    ] {
        let error = refused(stored);
        assert!(
            matches!(error, PasswordError::Malformed { .. }),
            "{stored}: {error}"
        );
    }
    let long = format!("{{SSHA}}{}", "A".repeat(STORED_BYTES_MAX));
    assert!(matches!(refused(&long), PasswordError::TooLong { .. }));
}

#[test]
fn clear_text_begins_with_no_scheme() {
    for clear in [
        "plain", "", "{", "{}", "{}x", "{ x}y", "{x", "x{SSHA}y", "{ä}",
    ] {
        let parsed = StoredPassword::parse(clear.as_bytes()).unwrap();
        assert!(matches!(parsed, StoredPassword::Clear(_)), "{clear}");
        assert!(parsed.matches(clear.as_bytes()) && !parsed.matches(b"other"));
    }
    assert_eq!(scheme_of(b"{a/B-1._}x"), Some(("a/B-1._", b"x".as_slice())));
}

proptest::proptest! {
    #[test]
    fn any_stored_bytes_are_survived(
        stored in "\\{(ARGON2|BCRYPT|CRYPT|SSHA|PBKDF2-SHA256|PBKDF2_SHA256)\\}([ -~]{0,60}|\\$(1|5|6|y|2b)\\$[./0-9A-Za-z$]{0,60})"
    ) {
        if let Ok(parsed) = StoredPassword::parse(stored.as_bytes())
            && parsed.work(1) < Work::from_millis(50)
        {
            let _ = parsed.matches(b"x");
        }
    }
}
