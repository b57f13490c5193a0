import com.unboundid.ldap.sdk.LDAPConnection;
import com.unboundid.ldap.sdk.LDAPException;
import com.unboundid.ldap.sdk.ResultCode;
import com.unboundid.ldap.sdk.SASLBindRequest;
import com.unboundid.ldap.sdk.SCRAMSHA256BindRequest;
import com.unboundid.ldap.sdk.SCRAMSHA512BindRequest;
import com.unboundid.ldap.sdk.extensions.WhoAmIExtendedRequest;
import com.unboundid.ldap.sdk.extensions.WhoAmIExtendedResult;
import java.util.Map;
import javax.security.sasl.Sasl;

/**
 * SCRAM as the UnboundID LDAP SDK speaks it: it does not escape what RFC 5802 §5.1 has escaped in names, so that they are
 * no DNs. Java itself, and so JNDI, has no SCRAM.
 */
public class Scram {
    public static void main(String[] args) throws Exception {
        String host = args[0], name = args[2], dn = args[3], password = args[4];
        int port = Integer.parseInt(args[1]);
        for (boolean sha512 : new boolean[] {false, true}) {
            try (LDAPConnection connection = new LDAPConnection(host, port)) {
                connection.bind(request(sha512, name, password));
                WhoAmIExtendedResult who =
                    (WhoAmIExtendedResult) connection.processExtendedOperation(new WhoAmIExtendedRequest());
                check(("dn:" + dn).equalsIgnoreCase(who.getAuthorizationID()), who.getAuthorizationID());
                for (String[] wrong : new String[][] {{name, password + "x"}, {"nobody", password}}) {
                    try {
                        connection.bind(request(sha512, wrong[0], wrong[1]));
                        check(false, "a wrong password was accepted");
                    } catch (LDAPException refused) {
                        check(refused.getResultCode() == ResultCode.INVALID_CREDENTIALS, refused.toString());
                    }
                }
            }
        }
        String[] mechanisms = {"SCRAM-SHA-256", "SCRAM-SHA-512"};
        boolean isThere = Sasl.createSaslClient(mechanisms, null, "ldap", host, Map.of(), null) != null;
        check(!isThere, "Java has SCRAM now: bind with it through JNDI here");
        System.out.println("all is well");
    }

    static SASLBindRequest request(boolean sha512, String name, String password) {
        return sha512 ? new SCRAMSHA512BindRequest(name, password) : new SCRAMSHA256BindRequest(name, password);
    }

    static void check(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }
}
