<?php
// Records how it interprets each request, in several representations. UNDERSTOOD is the file.
$target = $_SERVER['HTTP_X_ORIGINAL_URL'] ?? $_SERVER['HTTP_X_REWRITE_URL'] ?? $_SERVER['REQUEST_URI'];
$paths = [rawurldecode(explode('?', $target)[0])];
$parsed = parse_url($target, PHP_URL_PATH);
if (is_string($parsed)) {
    $paths[] = rawurldecode($parsed);
}
// The front controller runs for all paths without a file, under its own name.
if (basename($_SERVER['SCRIPT_NAME']) !== 'index.php') {
    $paths[] = $_SERVER['SCRIPT_NAME'] . ($_SERVER['PATH_INFO'] ?? '');
    $paths[] = $_SERVER['PHP_SELF'];
}
$hosts = array_filter([$_SERVER['HTTP_HOST'] ?? null, $_SERVER['SERVER_NAME'] ?? null, $_SERVER['HTTP_X_FORWARDED_HOST'] ?? null]);
$seen = [
    'number' => $_SERVER['HTTP_X_NUMBER'] ?? null,
    'route' => $_SERVER['HTTP_X_ROUTE'] ?? null,
    'method' => $_SERVER['HTTP_X_HTTP_METHOD_OVERRIDE'] ?? $_SERVER['HTTP_X_HTTP_METHOD'] ?? $_SERVER['HTTP_X_METHOD_OVERRIDE'] ?? $_SERVER['REQUEST_METHOD'],
    'hosts' => array_values($hosts),
    'paths' => array_map('bin2hex', $paths),
];
file_put_contents($_SERVER['UNDERSTOOD'], json_encode($seen) . "\n", FILE_APPEND | LOCK_EX);
echo 'understood';
