import com.unboundid.ldap.sdk.AddRequest;
import com.unboundid.ldap.sdk.AsyncRequestID;
import com.unboundid.ldap.sdk.AsyncSearchResultListener;
import com.unboundid.ldap.sdk.BindResult;
import com.unboundid.ldap.sdk.LDAPConnection;
import com.unboundid.ldap.sdk.LDAPException;
import com.unboundid.ldap.sdk.ResultCode;
import com.unboundid.ldap.sdk.SearchRequest;
import com.unboundid.ldap.sdk.SearchResult;
import com.unboundid.ldap.sdk.SearchResultEntry;
import com.unboundid.ldap.sdk.SearchResultReference;
import com.unboundid.ldap.sdk.SearchScope;
import com.unboundid.ldap.sdk.SimpleBindRequest;
import com.unboundid.ldap.sdk.controls.PersistentSearchChangeType;
import com.unboundid.ldap.sdk.controls.PersistentSearchRequestControl;
import com.unboundid.ldap.sdk.extensions.CancelExtendedRequest;
import com.unboundid.ldap.sdk.unboundidds.controls.GetUserResourceLimitsRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.GetUserResourceLimitsResponseControl;
import com.unboundid.ldap.sdk.unboundidds.controls.IgnoreNoUserModificationRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.MatchingEntryCountRequestControl;
import com.unboundid.ldap.sdk.unboundidds.controls.MatchingEntryCountResponseControl;
import com.unboundid.ldap.sdk.unboundidds.controls.MatchingEntryCountType;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Cancel, and controls of PingDirectory, as the UnboundID LDAP SDK speaks them. */
public class Controls {
    public static void main(String[] args) throws Exception {
        String host = args[0], admin = args[2], password = args[3], suffix = args[4];
        LDAPConnection connection = new LDAPConnection(host, Integer.parseInt(args[1]));

        BindResult bound = connection.bind(new SimpleBindRequest(
            admin, password, new GetUserResourceLimitsRequestControl(true)));
        GetUserResourceLimitsResponseControl limits = GetUserResourceLimitsResponseControl.get(bound);
        check(limits != null, "the limits are told");
        check(limits.getSizeLimit() == 0 && limits.getTimeLimitSeconds() == 0, "the administrator has none");
        check(limits.getIdleTimeLimitSeconds() == 3600, "idle connections are closed after an hour");
        check(limits.getLookthroughLimit() == 0, "all candidates are looked at");

        String uuid = "597ae2f6-16a6-1027-98f4-d28b5365dc14";
        AddRequest add = new AddRequest(
            "dn: cn=kept," + suffix, "objectClass: device", "cn: kept", "entryUUID: " + uuid);
        try {
            connection.add(add);
            check(false, "the identifier is the server's to give");
        } catch (LDAPException refused) {
            check(refused.getResultCode() == ResultCode.CONSTRAINT_VIOLATION, refused.toString());
        }
        add.addControl(new IgnoreNoUserModificationRequestControl());
        connection.add(add);
        String found = connection.getEntry("cn=kept," + suffix, "entryUUID").getAttributeValue("entryUUID");
        check(uuid.equals(found), "the identifier is kept");

        Ends ends = new Ends();
        SearchRequest search = new SearchRequest(ends, suffix, SearchScope.SUB, "(objectClass=*)");
        search.addControl(new PersistentSearchRequestControl(
            PersistentSearchChangeType.allChangeTypes(), true, true));
        AsyncRequestID persistent = connection.asyncSearch(search);
        ResultCode canceled = connection
            .processExtendedOperation(new CancelExtendedRequest(persistent)).getResultCode();
        check(canceled == ResultCode.CANCELED || canceled == ResultCode.SUCCESS, canceled.toString());
        check(ends.code.take() == ResultCode.CANCELED, "the search ends as canceled");
        SearchRequest count = new SearchRequest(suffix, SearchScope.ONE, "(objectClass=*)");
        count.addControl(new MatchingEntryCountRequestControl(true, 100, false, false, true));
        MatchingEntryCountResponseControl counted =
            MatchingEntryCountResponseControl.get(connection.search(count));
        check(counted.getCountType() == MatchingEntryCountType.EXAMINED_COUNT, counted.toString());
        check(counted.getCountValue() == 5 && counted.searchIndexed(), counted.toString());
        check(counted.getDebugInfo().get(0).startsWith("plan: "), counted.toString());
        SearchRequest unindexed = new SearchRequest(suffix, SearchScope.SUB, "(sn=*)");
        unindexed.addControl(new MatchingEntryCountRequestControl());
        counted = MatchingEntryCountResponseControl.get(connection.search(unindexed));
        check(counted.getCountType() == MatchingEntryCountType.UNKNOWN, counted.toString());
        check(!counted.searchIndexed(), counted.toString());

        connection.close();
        System.out.println("all is well");
    }

    /** Keeps how a search has ended. */
    static class Ends implements AsyncSearchResultListener {
        final BlockingQueue<ResultCode> code = new LinkedBlockingQueue<>();

        public void searchEntryReturned(SearchResultEntry entry) {}

        public void searchReferenceReturned(SearchResultReference reference) {}

        public void searchResultReceived(AsyncRequestID id, SearchResult result) {
            code.add(result.getResultCode());
        }
    }

    static void check(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }
}
