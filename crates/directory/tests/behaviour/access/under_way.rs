//! Searches that are begun together, go on under other rules, and are gone on with by cookies.

use super::*;

#[test]
fn searches_of_a_burst_may_be_of_different_people() {
    let directory = directory();
    let (anne, bert) = (user(&directory, ANNE), user(&directory, BERT));
    let own = Rule::to(What::entries(DnScope::Children, PEOPLE))
        .by(Who::SelfEntry, Rights::UP_TO_READ)
        .by(
            Who::Dn(DnPattern::new(DnScope::Base, BERT)),
            Rights::UP_TO_READ,
        )
        .by(Who::Anyone, Rights::NONE);
    set(&directory, [own, users_read()]);
    let people = [&anne, &bert, &admin(), &Identity::Anonymous, &anne, &bert];
    let queries: Vec<Query<'_>> = people
        .iter()
        .flat_map(|who| {
            let one = |dn| by(who, dn, Scope::Base, EVERYTHING);
            [
                one(BERT),
                one(ANNE),
                tree(who, "(uid=*)"),
                tree(who, "(uid=bert)"),
            ]
        })
        .collect();
    let together = search_together(&directory, &queries);
    for (query, found) in queries.iter().zip(&together) {
        assert_eq!(*found, search(&directory, query));
    }
    let counts =
        |found: &[Found]| -> Vec<usize> { found.iter().map(|found| found.entries.len()).collect() };
    assert_eq!(counts(&together[..4]), [0, 1, 2, 0], "Anne");
    assert_eq!(counts(&together[4..8]), [1, 1, 3, 1], "Bert");
    assert_eq!(counts(&together[8..12]), [1, 1, 3, 1], "the administrator");
    assert_eq!(counts(&together[12..16]), [0; 4], "nobody");
}

/// Goes on by a step of one entry; the DNs found, and how it ended.
fn step<E: Engine>(search: &mut Search<E>) -> (Vec<String>, Option<ResultCode>) {
    let mut out = Vec::new();
    let budget = Budget {
        entries: 1,
        work: 1 << 20,
        out_bytes: 1 << 20,
    };
    let ended = loop {
        let was_planned = search.is_planned();
        let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
        match search.step(&mut wire, budget).unwrap() {
            Step::Done(outcome) => break Some(outcome.code),
            Step::Fetch => search.snapshot().fetch().unwrap(),
            Step::More if !was_planned => {}
            Step::More | Step::Room(_) | Step::Wait => break None,
        }
    };
    let found = Answer::all(&out)
        .into_iter()
        .filter_map(|answer| answer.entry);
    (found.collect(), ended)
}

#[test]
fn what_was_decided_for_the_children_of_an_entry_ends_with_its_name() {
    const HIDDEN: &str = "ou=hidden,dc=example,dc=com";
    let directory = directory();
    let hide = Rule::to(What::entries(DnScope::Children, HIDDEN)).by(Who::Anyone, Rights::NONE);
    set(&directory, [hide, users_read()]);
    // All searches share what is known of who asks.
    let who = directory.requester(user(&directory, CARL));
    let count = || {
        let filter = filter_text::parse("(|(uid=anne)(uid=bert))").unwrap();
        let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
        let snapshot = directory.snapshot().unwrap();
        let mut search = Search::new(snapshot, &who, &request, SearchOptions::default());
        let mut count = 0;
        loop {
            let (more, ended) = step(&mut search);
            count += more.len();
            match ended {
                None => {}
                Some(code) => {
                    assert_eq!(code, ResultCode::Success);
                    break count;
                }
            }
        }
    };
    assert_eq!([count(), count()], [2, 2]);
    succeed(&directory, rename(PEOPLE, "ou=hidden", false, None));
    assert_eq!([count(), count()], [0, 0]);
    succeed(&directory, rename(HIDDEN, "ou=People", false, None));
    assert_eq!([count(), count()], [2, 2]);
}

#[test]
fn searches_under_way_heed_new_rules() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let begin = |together: bool| {
        let filter = filter_text::parse("(!(mail=nobody@example.com))").unwrap();
        let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
        let who: Arc<Requester> = directory.requester(anne.clone());
        let snapshot = directory.snapshot().unwrap();
        let options = SearchOptions::default();
        match together {
            true => {
                let mut searches = Searches::new(snapshot);
                searches
                    .begin([(&who, &request, options)].into_iter())
                    .remove(0)
            }
            false => Search::new(snapshot, &who, &request, options),
        }
    };
    let rest = |search: &mut Search<On>| {
        let mut found = Vec::new();
        loop {
            let (more, ended) = step(search);
            found.extend(more);
            if let Some(code) = ended {
                return (found, code);
            }
        }
    };
    let owned = |dns: &[&str]| -> Vec<String> { dns.iter().map(|dn| (*dn).to_owned()).collect() };
    for together in [false, true] {
        set(&directory, [users_read()]);
        let mut search = begin(together);
        assert_eq!(step(&mut search), (owned(&[SUFFIX]), None));
        // Entries are hidden, and mail may not be searched any more.
        set(&directory, [hide_secret(), hide_mail(), users_read()]);
        assert_eq!(rest(&mut search), (owned(&[ANNE]), ResultCode::Success));
        // Back to where all may be seen.
        let mut search = begin(together);
        set(&directory, [users_read()]);
        let all = owned(&[SUFFIX, PEOPLE, SECRET, BELOW, ANNE, BERT, CARL]);
        assert_eq!(rest(&mut search).0.len(), all.len());
        // The base, or all there is.
        let mut search = begin(together);
        step(&mut search);
        let hide = Rule::to(What::entries(DnScope::Base, SUFFIX)).by(Who::Anyone, Rights::NONE);
        set(&directory, [hide, users_read()]);
        let refused = (Vec::new(), ResultCode::InsufficientAccessRights);
        assert_eq!(rest(&mut search), refused);
        set(&directory, [users_read()]);
        let mut search = begin(together);
        step(&mut search);
        set(&directory, []);
        assert_eq!(rest(&mut search), refused);
    }
    // The next page is another search.
    set(&directory, [users_read()]);
    let mut query = tree(&anne, "(uid=*)");
    query.options.page = Some((1, Vec::new()));
    let first = search(&directory, &query);
    assert_eq!(dns(&first), [ANNE]);
    set(
        &directory,
        [
            Rule::to(What::entries(DnScope::Base, BERT)).by(Who::Anyone, Rights::NONE),
            users_read(),
        ],
    );
    query.options.page = Some((1, first.cookie));
    assert_eq!(dns(&search(&directory, &query)), [CARL]);
}

#[test]
fn cookies_tell_nothing_of_what_is_hidden() {
    const CORA: &str = "uid=cora,ou=People,dc=example,dc=com";
    let directory = directory();
    let lines = "objectClass: inetOrgPerson\nuid: cora\ncn: Person cora\nsn: cora";
    succeed(&directory, add(CORA, lines));
    let anne = user(&directory, ANNE);
    let page = |scope, filter: &str, cookie| {
        let mut query = by(&anne, PEOPLE, scope, filter);
        query.options.page = Some((1, cookie));
        search(&directory, &query)
    };
    // In the order of names: Bert stands between the two that are seen.
    let hide_bert = Rule::to(What::entries(DnScope::Base, BERT)).by(Who::Anyone, Rights::NONE);
    set(&directory, [hide_bert, users_read()]);
    let first = page(Scope::OneLevel, EVERYTHING, Vec::new());
    assert_eq!(dns(&first), [ANNE]);
    assert!(!first.cookie.windows(4).any(|part| part == b"bert"));
    let second = page(Scope::OneLevel, EVERYTHING, first.cookie);
    assert_eq!(dns(&second), [CORA]);
    assert!(second.cookie.is_empty());
    // In the order of numbers: whether he has the mail that is asked for.
    set(&directory, [hide_mail(), users_read()]);
    let position = |mail: &str| {
        let filter = format!("(|(mail={mail}@example.com)(uid=anne)(uid=cora))");
        let found = page(Scope::Subtree, &filter, Vec::new());
        assert_eq!(dns(&found), [ANNE]);
        assert!(!found.cookie.is_empty());
        // Behind the seal.
        found.cookie[9..].to_vec()
    };
    assert_eq!(position("bert"), position("nobody"));
}
