//! Segments and entries.

use super::*;

pub(super) async fn entries_must_balance(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    let segment = sample::segment(&sample::lease(&sample::trial(&job, 0), "l1"), 0);
    let mut entry = sample::entry(&segment);
    entry.lines.pop();
    let refused = put(&*store, [Row::Segment(segment.clone()), Row::Entry(entry.clone())]).await;
    assert_eq!(refused, Err(StoreError::Unbalanced(format!("entry {}", entry.id))));
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    assert!(store.segments(&job.project, &all).await.unwrap().is_empty());
}

pub(super) async fn segments_page_in_recorded_order(store: AnyStore) {
    let p = project_id("p");
    let (one, two) = (sample::job("p", 1, "a"), sample::job("p", 2, "b"));
    let leases =
        [(&one, "l1"), (&two, "l2")].map(|(job, id)| sample::lease(&sample::trial(job, 0), id));
    // Recorded out of the order of their times.
    for number in [4, 2, 0, 1, 3] {
        for lease in &leases {
            let segment = sample::segment(lease, number);
            put(&*store, [Row::Entry(sample::entry(&segment)), Row::Segment(segment)])
                .await
                .unwrap();
        }
    }
    let mut seen = Vec::new();
    let mut query = SegmentQuery { limit: 3, ..SegmentQuery::default() };
    loop {
        let page = store.segments(&p, &query).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        query.after = Some(*last);
        assert!(page.len() <= 3);
        seen.extend(page);
    }
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0));
    let text: Vec<&str> = seen.iter().map(|(_, segment)| segment.id.as_str()).collect();
    let recorded = "l1.4 l2.4 l1.2 l2.2 l1.0 l2.0 l1.1 l2.1 l1.3 l2.3";
    assert_eq!(text.join(" "), recorded);
    let ids = async |query: SegmentQuery| -> Vec<String> {
        let found = store.segments(&p, &query).await.unwrap();
        found.into_iter().map(|(_, segment)| segment.id).collect()
    };
    let of_one = SegmentQuery { job: Some(one.id.clone()), limit: 99, ..SegmentQuery::default() };
    assert_eq!(ids(of_one.clone()).await.join(" "), "l1.4 l1.2 l1.0 l1.1 l1.3");
    // Whole hours: one that only touches the period is outside.
    let period = SegmentQuery { from: Some(at(3600)), to: Some(at(3 * 3600)), ..of_one.clone() };
    assert_eq!(ids(period).await.join(" "), "l1.2 l1.1");
    let within = SegmentQuery { from: Some(at(3601)), to: Some(at(3602)), ..of_one.clone() };
    assert_eq!(ids(within).await.join(" "), "l1.1");
    let far = SegmentQuery { after: Some(u64::MAX), ..of_one };
    assert!(ids(far).await.is_empty());
    let entries = store.entries(&p, None, 4).await.unwrap();
    assert_eq!(entries.len(), 4);
    let rest = store.entries(&p, Some(entries[3].0), 99).await.unwrap();
    assert_eq!((rest.len(), rest[0].1.segment.as_str()), (6, "l1.0"));
}
