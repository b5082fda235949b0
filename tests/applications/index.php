<?php
// A small PHP application: `do` in the query selects the action.
switch ($_GET['do'] ?? '') {
case '':
    header('content-type: application/json');
    echo json_encode([
        'server' => $_SERVER,
        'get' => $_GET,
        'post' => $_POST,
        'cookies' => $_COOKIE,
        'files' => array_map(fn ($file) => [$file['name'], hash_file('sha256', $file['tmp_name'])], $_FILES),
        'input' => hash('sha256', file_get_contents('php://input')),
        'proxy' => getenv('HTTP_PROXY'),
    ], JSON_PARTIAL_OUTPUT_ON_ERROR);
    break;
case 'fields':
    http_response_code(418);
    header('x-own: one');
    header('x-own: two', false);
    setcookie('a', '1');
    setcookie('b', '2');
    echo 'short and stout';
    break;
case 'redirect':
    header('location: /elsewhere');
    break;
case 'nothing':
    http_response_code(204);
    break;
case 'big':
    for ($left = (int) $_GET['bytes']; $left > 0; $left -= 1000) {
        echo str_repeat('x', min($left, 1000));
    }
    break;
case 'length':
    header('content-length: ' . $_GET['announced']);
    echo str_repeat('x', (int) $_GET['bytes']);
    break;
case 'session':
    session_save_path(__DIR__ . '/../sessions');
    session_start();
    echo $_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
    break;
case 'wait':
    // The first line is sent before the file exists.
    echo "begun\n";
    flush();
    while (!file_exists($_GET['for'])) {
        usleep(1000);
        clearstatcache();
    }
    echo "over\n";
    break;
case 'unread':
    // Without reading the content.
    echo 'enough';
    break;
case 'die':
    if (isset($_GET['after'])) {
        echo str_repeat('x', (int) $_GET['after']);
            flush();
    }
    posix_kill(getmypid(), 9);
    break;
case 'sleep':
    sleep((int) $_GET['seconds']);
    break;
case 'complain':
    error_log("this is wrong\nand so is that");
    echo 'said';
    break;
case 'long-head':
    header('x-long: ' . str_repeat('x', 70000));
    break;
}
