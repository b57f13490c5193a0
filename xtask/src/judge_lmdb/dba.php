<?php
// What a program does with PHP's dba: it changes, walks through all keys, and reads again.
$bound = 1000;
function all($db) {
    global $bound;
    $count = 0;
    for ($key = dba_firstkey($db); $key !== false; $key = dba_nextkey($db)) {
        echo $key, "=", dba_fetch($key, $db), "\n";
        if (++$count > $bound) die("there is no end\n");
    }
    echo $count, " keys\n";
}
$db = dba_open("file", "n", "lmdb", 0600) or die("not made\n");
for ($n = 0; $n < 300; $n++) dba_insert("key$n", str_repeat("value $n ", 5), $db) or die("not inserted: $n\n");
for ($n = 0; $n < 300; $n += 3) dba_delete("key$n", $db) or die("not deleted: $n\n");
for ($n = 1; $n < 300; $n += 3) dba_replace("key$n", "new $n", $db) or die("not replaced: $n\n");
var_dump(dba_insert("key1", "twice", $db), dba_exists("key1", $db), dba_exists("key0", $db));
var_dump(dba_sync($db), dba_optimize($db));
all($db);
dba_close($db);
$db = dba_open("file", "r", "lmdb") or die("not opened\n");
all($db);
var_dump(@dba_insert("more", "value", $db));
dba_close($db);
$db = dba_open("file", "w", "lmdb") or die("not opened\n");
var_dump(dba_insert("more", "value", $db), dba_fetch("more", $db));
dba_close($db);
